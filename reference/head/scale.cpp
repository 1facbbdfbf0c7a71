#include "reference/head/scale.h"

#include <gmp.h>
#include <mpfi.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

using Integer = boost::multiprecision::cpp_int;

constexpr std::size_t max_text = 65536;
constexpr long max_exponent = 20000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// The integer of a run of digits. Boost reads a leading 0 as octal, hence the stripping.
Integer integer_of(std::string_view digits, bool hexadecimal) {
  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string_view::npos) return 0;
  return Integer((hexadecimal ? "0x" : "") + std::string(digits.substr(first)));
}

/// A cursor over the text of one exact number.
class NumberParser {
 public:
  explicit NumberParser(const std::string& text) : text_(text) {
    if (text.size() > max_text) throw std::invalid_argument("number: the text is too long");
  }

  Rational parse() {
    const bool negative = sign();
    Rational value = number();
    if (accept('/')) {
      const Rational denominator = number();
      if (denominator == 0) fail("zero denominator");
      value /= denominator;
    }
    if (at_ != text_.size()) fail("not an exact number");
    return negative ? Rational(-value) : value;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::invalid_argument(
        quoted_text(text_) + ": " + what +
        ", expected a decimal, a hexadecimal float, a fraction or a power such as 2^-10");
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool sign() {
    if (accept('-')) return true;
    accept('+');
    return false;
  }
  std::string_view run(bool (*wanted)(char)) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && wanted(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  long exponent() {
    const bool negative = sign();
    const std::string_view digits = run(is_digit);
    if (digits.empty()) fail("an exponent has no digits");
    long value = 0;
    for (const char c : digits) {
      value = value * 10 + (c - '0');
      if (value > max_exponent) fail("an exponent is beyond 20000");
    }
    return negative ? -value : value;
  }
  static Rational power(unsigned base, long exponent) {
    const Integer magnitude =
        boost::multiprecision::pow(Integer(base), static_cast<unsigned>(std::labs(exponent)));
    return exponent < 0 ? Rational(Integer(1), magnitude) : Rational(magnitude);
  }
  Rational number() {
    const bool hexadecimal =
        text_.substr(at_).starts_with("0x") || text_.substr(at_).starts_with("0X");
    if (hexadecimal) at_ += 2;
    const auto digit = hexadecimal ? is_hex_digit : is_digit;
    std::string digits(run(digit));
    const bool whole = peek() != '.';
    std::size_t places = 0;
    if (accept('.')) {
      const std::string_view fraction = run(digit);
      places = fraction.size();
      digits += fraction;
    }
    if (digits.empty()) fail("not an exact number");
    const Integer significand = integer_of(digits, hexadecimal);
    if (!hexadecimal && whole && accept('^')) {
      if (significand != 2 && significand != 10) fail("only powers of 2 and 10 are read");
      return power(significand == 2 ? 2 : 10, exponent());
    }
    long scale = 0;
    if (hexadecimal ? accept('p') || accept('P') : accept('e') || accept('E')) scale = exponent();
    scale -= static_cast<long>(places) * (hexadecimal ? 4 : 1);
    return significand == 0 ? Rational(0)
                            : Rational(significand) * power(hexadecimal ? 2 : 10, scale);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// A GMP rational for the conversions that MPFR and MPFI round correctly.
class Mpq {
 public:
  explicit Mpq(const Rational& value) {
    mpq_init(v_);
    assign(mpq_numref(v_), boost::multiprecision::numerator(value));
    assign(mpq_denref(v_), boost::multiprecision::denominator(value));
  }
  ~Mpq() { mpq_clear(v_); }
  Mpq(const Mpq&) = delete;
  Mpq& operator=(const Mpq&) = delete;
  mpq_srcptr get() const { return v_; }

 private:
  static void assign(mpz_ptr to, const Integer& from) {
    const Integer magnitude = boost::multiprecision::abs(from);
    std::vector<unsigned char> bytes;
    boost::multiprecision::export_bits(magnitude, std::back_inserter(bytes), 8);
    mpz_import(to, bytes.size(), 1, 1, 1, 0, bytes.data());
    if (from < 0) mpz_neg(to, to);
  }
  mpq_t v_;
};

/// rational / sqrt(radicand), times log2(e) or ln 2 if asked, every step rounded outward.
enum class Factor : unsigned char { none, log2_e, ln_2 };

WideInterval enclose_product(const Rational& rational, std::uint64_t radicand, Factor factor,
                             mpfr_prec_t bits) {
  // five operations of relative error 2^(1-p) at most each: 16 more bits leave one final rounding
  const mpfr_prec_t working = bits + 16;
  WideInterval value(working);
  mpfi_set_q(value.raw(), Mpq(rational).get());
  if (radicand > 1) {
    WideInterval root(working);
    mpfi_set_ui(root.raw(), radicand);
    mpfi_sqrt(root.raw(), root.raw());
    value /= root;
  }
  if (factor != Factor::none) {
    WideInterval ln_2(working);
    mpfi_const_log2(ln_2.raw());  // MPFR's name for ln 2
    factor == Factor::ln_2 ? value *= ln_2 : value /= ln_2;
  }
  WideInterval rounded(bits);
  mpfi_set(rounded.raw(), value.raw());
  return rounded;
}

/// Refines until the enclosure is a point or two neighbouring doubles. Ends, because the value is
/// then either a double found exactly (rational, factor none: handled by `enclose`) or irrational:
/// 1/sqrt(n) for no square n, and a nonzero algebraic number times ln 2 or log2(e)
/// (Lindemann-Weierstrass).
Interval tight(const Rational& rational, std::uint64_t radicand, Factor factor) {
  if (rational == 0) return {0.0};
  if (radicand == 1 && factor == Factor::none) return enclose(rational);
  for (mpfr_prec_t bits = 128;; bits *= 2) {
    const Interval doubles = enclose_product(rational, radicand, factor, bits).to_doubles();
    const bool neighbours =
        std::nextafter(doubles.lo(), std::numeric_limits<double>::infinity()) == doubles.hi();
    if (doubles.is_point() || neighbours || bits > 8192) return doubles;
  }
}

std::uint64_t integer_sqrt(std::uint64_t n) {
  mpz_t root;
  mpz_init_set_ui(root, n);
  mpz_sqrt(root, root);
  const std::uint64_t value = mpz_get_ui(root);
  mpz_clear(root);
  return value;
}

}  // namespace

Rational parse_exact_number(const std::string& text) { return NumberParser(text).parse(); }

std::string to_text(const Rational& value) {
  const Integer denominator = boost::multiprecision::denominator(value);
  std::string text = boost::multiprecision::numerator(value).str();
  if (denominator != 1) text += "/" + denominator.str();
  return text;
}

Interval enclose(const Rational& value) {
  const Mpq exact(value);
  mpfr_t bound;
  mpfr_init2(bound, 53);
  // two roundings in the same direction are one: to 53 bits, then to the range of doubles
  mpfr_set_q(bound, exact.get(), MPFR_RNDD);
  const double lo = mpfr_get_d(bound, MPFR_RNDD);
  mpfr_set_q(bound, exact.get(), MPFR_RNDU);
  const double hi = mpfr_get_d(bound, MPFR_RNDU);
  mpfr_clear(bound);
  return {lo, hi};
}

Scale Scale::reciprocal_sqrt(std::uint64_t n) {
  if (n == 0) throw std::invalid_argument("Scale: 1/sqrt(0)");
  Scale scale;
  const std::uint64_t root = integer_sqrt(n);
  if (root * root == n) {
    scale.rational_ = Rational(Integer(1), Integer(root));
  } else {
    scale.radicand_ = n;
  }
  return scale;
}

Scale Scale::natural(Rational s) {
  Scale scale;
  scale.rational_ = std::move(s);
  return scale;
}

Scale Scale::base2(Rational c) {
  Scale scale = natural(std::move(c));
  scale.base2_ = true;
  return scale;
}

Scale Scale::parse(const std::string& text, std::uint64_t d) {
  constexpr std::string_view root = "1/sqrt(";
  if (text.starts_with(root) && text.ends_with(')')) {
    const std::string inside = text.substr(root.size(), text.size() - root.size() - 1);
    if (inside == "d" && d > 0) return reciprocal_sqrt(d);
    std::uint64_t n = 0;
    bool ok = !inside.empty() && inside.size() <= 18;
    for (const char c : inside) {
      ok = ok && is_digit(c);
      n = n * 10 + static_cast<std::uint64_t>(c - '0');
    }
    if (ok && n > 0) return reciprocal_sqrt(n);
    throw InputError("scale " + quoted_text(text) +
                     ": expected 1/sqrt(d) or 1/sqrt(n) with a positive integer n");
  }
  try {
    return natural(parse_exact_number(text));
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("scale ") + error.what() + ", or 1/sqrt(d)");
  }
}

Scale Scale::from_text(const std::string& text) {
  constexpr std::string_view base_2 = "log2:";
  if (!text.starts_with(base_2)) return parse(text, 0);
  try {
    return base2(parse_exact_number(text.substr(base_2.size())));
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("scale log2:") + error.what());
  }
}

Interval Scale::log2_factor() const {
  return tight(rational_, radicand_, base2_ ? Factor::none : Factor::log2_e);
}

WideInterval Scale::log2_factor(mpfr_prec_t bits) const {
  return enclose_product(rational_, radicand_, base2_ ? Factor::none : Factor::log2_e, bits);
}

Interval Scale::natural_factor() const {
  return tight(rational_, radicand_, base2_ ? Factor::ln_2 : Factor::none);
}

WideInterval Scale::natural_factor(mpfr_prec_t bits) const {
  return enclose_product(rational_, radicand_, base2_ ? Factor::ln_2 : Factor::none, bits);
}

std::string Scale::text() const {
  if (is_irrational()) return "1/sqrt(" + std::to_string(radicand_) + ")";
  return (base2_ ? "log2:" : "") + to_text(rational_);
}

}  // namespace headroom
