// Prints the numbers that the proof development shares with the program, one `NAME VALUE` a line,
// as the program has them: constants.py compares them with the Coq sources.
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "bounds/exp2_unit.h"
#include "reference/evaluate/simulate/fa4_polynomial.h"
#include "reference/format/convert.h"
#include "reference/format/exp2_limits.h"
#include "reference/model/kernel_model.h"

namespace headroom {
namespace {

void print(const std::string& name, int value) { std::printf("%s %d\n", name.c_str(), value); }
void print(const std::string& name, double value) { std::printf("%s %a\n", name.c_str(), value); }

void print_formats() {
  for (const Format* format : all_formats) {
    const std::string name(format->name);
    print(name + ".precision", format->precision);
    print(name + ".emax", format->emax);
    print(name + ".emin", format->emin);
    print(name + ".least_exponent", format->least_exponent());
    print(name + ".exponent_bits", format->exponent_bits());
    print(name + ".fraction_bits", format->trailing_bits());
  }
}

/// The arguments below and above which a unit's results are kept, and a stored weight is.
void print_thresholds() {
  Exp2Unit unit;
  print("exp2.gradual.kept_from", exp2_flush_exponent(unit));
  unit.flush_to_zero = true;
  print("exp2.flushing.kept_from", exp2_flush_exponent(unit));
  unit.name = "ulp:90", unit.max_error_ulps = 90, unit.monotone_at_integers = false;
  print("exp2.ulps.kept_from", exp2_flush_exponent(unit));
  for (const Format* format : {&bf16, &tf32, &fp32}) {
    const std::string name = "p." + std::string(format->name);
    print(name + ".kept_from", weight_flush_exponent({*format, false, true, false}));
    print(name + ".limit", weight_limit_exponent({*format, false, true, false}));
  }
}

void print_limits() {
  for (const Format* format : {&fp32, &fp16, &bf16}) {
    const std::string name = "exp2." + std::string(format->name);
    const ResultThreshold overflow = exp2_thresholds(*format, false).overflow;
    print(name + ".overflow.lower", overflow.log2_lower);
    print(name + ".overflow.upper", overflow.log2_upper);
    print(name + ".largest_argument",
          decode(*format, exp2_limits(*format, *format, false).largest_finite));
    print(name + ".largest_finite", format->max_finite());
  }
}

void print_polynomial() {
  for (int i = 0; i <= 3; ++i) {
    print("fa4-poly3.c" + std::to_string(i), static_cast<double>(fa4_coefficients[3][i]));
  }
  print("fa4-poly3.ulps", fa4_polynomial("fa4-poly3")->max_error_ulps);
}

}  // namespace
}  // namespace headroom

int main() {
  headroom::print_formats();
  headroom::print_thresholds();
  headroom::print_limits();
  headroom::print_polynomial();
}
