// What the fixed stabilizers share: norms in the kernel's arithmetic, the centre, the stored mu.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/stabilizer/kernel_arithmetic.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom {

/// The smallest integers not below log2 of n (n >= 1), and of max(1, x). NaN or infinite x gives
/// NaN.
int ceil_log2_count(std::int64_t n);
double ceil_log2_at_least_one_or_nan(double x);
/// max |V| over the keys that are not padding; NaN if any of them is NaN or infinite.
double largest_value(const Head& head);

/// A stabilizer mu_i = B(||q~_i||) - C (+ <q~_i, mean> under virtual centring).
///
/// Norms are of the operands as multiplied: of K~ after mean centring, of K - mean under virtual
/// centring, of K without centring; keys that are padding are left out. Where the order of the
/// key mean's sum decides its rounding, it is summed in FP32 one key after another.
class NormRule : public Stabilizer {
 public:
  /// `initial_square`: where every sum of squares starts.
  NormRule(const Head& head, const KernelModel& kernel, const Operands& operands,
           const StabilizerParameters& parameters, double initial_square = 0);

  double mu(std::int64_t row) const final;
  double largest_query_norm() const override { return query_norm_; }
  double largest_key_norm() const override { return key_norm_; }

 protected:
  /// B - C without the centre is `base(row)` minus exponent_cap(): exact until it is stored.
  virtual double base(std::int64_t row) const = 0;

  /// RN(RN(||q|| max||k||) |factor|): the bound of published kernels, the factor only if not 1.
  double nearest_bound(double query_norm) const;
  double row_norm(std::int64_t row) const { return row_norms_[static_cast<std::size_t>(row)]; }
  const KernelArithmetic& arithmetic() const { return arithmetic_; }
  const Head& head() const { return head_; }
  const KernelModel& kernel() const { return kernel_; }
  double stored_factor() const;

  static GateOutcome compare(double value, double limit);

 private:
  const Head& head_;
  const KernelModel& kernel_;
  const Operands& operands_;
  KernelArithmetic arithmetic_;
  double initial_square_;
  std::vector<double> row_norms_;
  std::vector<double> centre_;  ///< the stored mean; empty but for virtual centring
  double query_norm_ = 0, key_norm_ = 0;
};

/// The mean of the keys, summed in FP32 one key after another, divided, and rounded to
/// kernel.centring.mean. `operands` must be of a kernel without centring.
std::vector<double> sequential_key_mean(const Head& head, const KernelModel& kernel,
                                        const Operands& uncentred);

/// clis-alg1: what a norm's sum of squares starts at, so that it is not below the exact sum for the
/// squares that underflow: n eta, eta the smallest normal of formats whose hardware flushes (FP32's
/// range), else the smallest subnormal.
double clis_alg1_initial_square(const Format& format, std::int64_t n);
/// clis-alg1: smallest number of the format not below (1 - u)^-(n + 6): what two computed norms of
/// n channels and their product can lack. A square is rounded three times (its element twice,
/// itself once) and then passes at most n sums; the root halves that and is rounded: (1 - u)^(n/2
/// + 2.5) a norm.
double clis_alg1_inflation(const Format& format, std::int64_t n);

// One a file of the same name.
std::unique_ptr<Stabilizer> make_clis(const Head& head, const KernelModel& kernel,
                                      const Operands& operands,
                                      const StabilizerParameters& parameters);
std::unique_ptr<Stabilizer> make_clis_alg1(const Head& head, const KernelModel& kernel,
                                           const Operands& operands,
                                           const StabilizerParameters& parameters);
std::unique_ptr<Stabilizer> make_fixed_m(const Head& head, const KernelModel& kernel,
                                         const Operands& operands,
                                         const StabilizerParameters& parameters);
std::unique_ptr<Stabilizer> make_fixed_m_n(const Head& head, const KernelModel& kernel,
                                           const Operands& operands,
                                           const StabilizerParameters& parameters);
std::unique_ptr<Stabilizer> make_online(const Head& head, const KernelModel& kernel,
                                        const Operands& operands,
                                        const StabilizerParameters& parameters);

}  // namespace headroom
