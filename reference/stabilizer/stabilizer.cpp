#include "reference/stabilizer/stabilizer.h"

#include "reference/input_error.h"
#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

struct Rule {
  std::string_view name;
  std::unique_ptr<Stabilizer> (*make)(const Head&, const KernelModel&, const Operands&,
                                      const StabilizerParameters&);
};
constexpr Rule rules[] = {
    {"clis", make_clis},           {"clis-alg1", make_clis_alg1}, {"fixed-m", make_fixed_m},
    {"fixed-m-n", make_fixed_m_n}, {"online", make_online},
};

}  // namespace

std::vector<std::string> stabilizer_names() {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.emplace_back(rule.name);
  return names;
}

std::unique_ptr<Stabilizer> make_stabilizer(const std::string& name, const Head& head,
                                            const KernelModel& kernel, const Operands& operands,
                                            const StabilizerParameters& parameters) {
  for (const Rule& rule : rules) {
    if (rule.name == name) return rule.make(head, kernel, operands, parameters);
  }
  std::string names;
  for (const Rule& rule : rules) names += (names.empty() ? "" : ", ") + std::string(rule.name);
  throw InputError("stabilizer: found \"" + name + "\", expected one of " + names);
}

}  // namespace headroom
