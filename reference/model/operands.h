// The operands as the matrix unit multiplies them: after scale folding and key centring.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"
#include "reference/model/passes/passes.h"
#include "reference/real/fp_environment.h"
#include "reference/real/interval.h"

namespace headroom {

/// The constants of kernel.scale for one softmax scale, as stored: the exact factors at each site
/// rounded once into scale.constant. A site without a factor multiplies nothing.
struct StoredConstants {
  double query = 1, key = 1, score = 1;
  bool at_query = false, at_key = false, at_score = false;
};
StoredConstants stored_constants(const Scale& scale, const KernelModel& kernel);

/// RN_operand(RN_arithmetic(x * constant)): a stored number times a folded constant. Requires:
/// NearestRounding is active.
double fold_constant(double x, const Format& format, double constant, const KernelModel& kernel);

/// Q~ and K~ of one head under one kernel, and the factor left for the score.
///
/// Raw score z_j = c <q, k_j>; multiplied score z~_j = score_factor <q~, k~_j>, where
/// score_factor is the *exact* product of the factors applied at the score site (1 if none), and
/// the constants folded into q~ and k~ are included in q~, k~ as rounded there. The softmax of the
/// z~ is the "multiplied" reference; it differs from the raw one by the pre-rounding of operands
/// and, for mean centring, by a shift common to the row.
///
/// Q~ is exact (its rounding sequence is fixed). K~ under mean centring depends on the order in
/// which the mean was summed; every order gives a mean inside stored_mean(), so each element of K~
/// is one of few values and is enclosed by [lo, hi]; they coincide when the rounded mean is
/// certain.
///
/// The mean, over the n keys [0, visibility.length) after folding: FP32 sum S^ in any order, then
/// S^ / n or S^ RN(1/n) rounded to FP32, then RNE to the mean's format. **Ensures**
/// |S^ - sum k| <= ((1 + 2^-24)^n - 1) sum |k| + 2 n 2^-126 (Higham, Accuracy and Stability of
/// Numerical Algorithms, 2nd ed., section 4.2), the last term, for FTZ and DAZ, only if some key is
/// no multiple of 2^-126; S^ = sum k where all keys are multiples of some 2^e >= 2^-149 and
/// sum |k| <= 2^(24 + e), since every partial sum is then a binary32 number.
class Operands {
 public:
  /// Reads Q, and K once (twice to name the place of an overflow). Throws nothing on non-finite
  /// operands: they leave finite() false and the rest unspecified. `head` and `kernel` must outlive
  /// this. Rows of K from visibility.length on are examined only if the kernel adds padded keys
  /// (Padding::zero_keys); otherwise it slices or selects them away.
  Operands(const UpwardRounding& up, const Head& head, const KernelModel& kernel);

  bool finite() const { return finite_; }
  /// Where the first NaN or infinity (stored, or made by pre-rounding) is: "k[12,3] = inf".
  const std::string& non_finite_where() const { return non_finite_where_; }
  /// With finite() false: it happens in every summation order of the key mean (always so for
  /// stored values and folding). False: some order of the model may overflow.
  bool non_finite_certain() const { return non_finite_certain_; }

  // The row functions set their own rounding scope and may be called in any.

  /// Row i of Q~, exact. `out` has channels() elements.
  void query_row(std::int64_t i, double* out) const;
  /// Row j of K~ as enclosures of each element.
  void key_row(std::int64_t j, double* lo, double* hi) const;
  /// Row j of s_k K, the raw key times the exact factors folded at the key site, minus nothing:
  /// what k~ + mean approximates. Enclosure of each element.
  void exact_key_row(std::int64_t j, double* lo, double* hi) const;
  /// Row i of s_q Q, exact factor times stored q. Enclosure of each element.
  void exact_query_row(std::int64_t i, double* lo, double* hi) const;

  /// Exact factor at the score site (1 if none), as an enclosure, and its stored constant.
  const Interval& score_factor() const { return score_factor_; }
  double stored_score_factor() const { return stored_score_factor_; }

  /// Stored mean a (mean or virtual centring), per channel; both ends equal when certain.
  /// Empty without centring, zeros if no key is visible. Multiplied keys are k - a (mean) or k
  /// (virtual).
  const std::vector<Interval>& stored_mean() const { return stored_mean_; }
  bool keys_certain() const { return keys_certain_; }

  /// How passes over the stored rows see Q~ or the folded keys, with every bit as query_row and
  /// key_row (before centring) have it; none where they cannot: other formats, foldings that one
  /// FP32 product and one rounding to BF16 are not, and products that underflow.
  struct PassReading {
    WordFormat words;
    Folding fold;
  };
  const std::optional<PassReading>& query_reading() const { return query_reading_; }
  const std::optional<PassReading>& key_reading() const { return key_reading_; }
  /// Of keys [0, visibility.length) that are neither folded nor centred, where a pass reads them:
  /// what PassKernels::sums gives, every element of `squares` finite.
  struct KeySquares {
    std::vector<float> squares;
    std::vector<double> by_channel;
  };
  const std::optional<KeySquares>& key_squares() const { return key_squares_; }
  /// Of Q, if it is not folded, there are key_squares and every row sees all of them: what
  /// PassKernels::queries gives with `mean` (arranged), about the mean of the keys.
  struct QueryProducts {
    std::vector<double> mean, squares, dots;
    std::vector<std::uint8_t> may_be_on_grid;
  };
  const std::optional<QueryProducts>& query_products() const { return query_products_; }
  /// Exact factors folded into Q and K.
  const Interval& query_factor() const { return query_factor_; }
  const Interval& key_factor() const { return key_factor_; }

  std::int64_t queries() const { return head_->queries(); }
  std::int64_t keys() const { return head_->keys(); }
  std::int64_t channels() const { return head_->channels(); }

 private:
  void reject(std::string where, bool certain = true);
  bool examine_queries();
  bool examine_together();
  bool square_keys(std::int64_t n);
  void examine_keys();
  std::optional<PassReading> reading(const Matrix& matrix, bool folds, double constant) const;
  bool examine_by_pass(const Matrix& matrix, std::int64_t begin, std::int64_t end,
                       std::optional<PassReading>& reading) const;
  void folded_key_row(std::int64_t j, double* out) const;

  const Head* head_;
  const KernelModel* kernel_;
  bool finite_ = true, keys_certain_ = true, non_finite_certain_ = true;
  std::string non_finite_where_;
  Interval score_factor_{1.0}, query_factor_{1.0}, key_factor_{1.0};
  double stored_score_factor_ = 1, stored_query_factor_ = 1, stored_key_factor_ = 1;
  bool fold_query_ = false, fold_key_ = false;
  std::vector<Interval> stored_mean_;
  std::optional<PassReading> query_reading_, key_reading_;
  std::optional<KeySquares> key_squares_;
  std::optional<QueryProducts> query_products_;
};

}  // namespace headroom
