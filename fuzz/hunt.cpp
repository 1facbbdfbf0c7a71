#include "fuzz/hunt.h"

#include <fmt/format.h>
#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "fuzz/archive.h"
#include "fuzz/ascent.h"
#include "fuzz/coverage.h"
#include "fuzz/diagnose.h"
#include "fuzz/execute.h"
#include "fuzz/generate.h"
#include "fuzz/mutate.h"
#include "fuzz/random.h"
#include "fuzz/verdict_edge.h"
#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();
constexpr std::size_t batch_size = 512;
constexpr std::size_t most_diagnoses = 4;  ///< of one objective and batch

/// One candidate of a batch; its memory is used again.
struct Item {
  Candidate candidate;
  bool thorough = false;
  bool ran = false, kept = false;
  std::uint64_t cell = 0;
  std::array<double, objective_count> closeness{};
};

class Search {
 public:
  Search(const Hunt& hunt, const HuntOptions& options)
      : hunt_(hunt),
        options_(options),
        archive_(hunt.objectives),
        executors_([this] { return std::make_unique<Executor>(hunt_); }),
        items_(batch_size),
        ascents_(hunt.objectives.size()),
        alarm_(hunt.objectives.size(), 0.0),
        quiet_until_(hunt.objectives.size(), 0) {
    result_.nearest.assign(hunt.objectives.size(), nothing);
    if (hunt.space.shapes.empty() || hunt.objectives.empty()) {
      throw InputError(hunt.target.name + ": found no shape or no objective to hunt");
    }
  }

  HuntResult run() {
    start_ = std::chrono::steady_clock::now();
    oneapi::tbb::task_arena arena(options_.threads > 0 ? options_.threads
                                                       : oneapi::tbb::task_arena::automatic);
    while (more()) {
      arena.execute([&] { one_batch(); });
      ++generation_;
      if (!report()) break;
    }
    result_.seconds = seconds();
    result_.cells = archive_.cells();
    result_.coverage = coverage_.count();
    for (const auto& e : executors_) result_.simulations += e->simulations();
    if (options_.save) save();
    return std::move(result_);
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool more() const {
    if (options_.stop_at_find && !result_.findings.empty()) return false;
    if (options_.runs > 0 && result_.runs >= options_.runs) return false;
    return options_.seconds <= 0 || seconds() < options_.seconds;
  }

  void one_batch() {
    archive_.settle();
    ask_ascents();
    oneapi::tbb::parallel_for(oneapi::tbb::blocked_range<std::size_t>(0, batch_size, 8),
                              [&](const auto& range) {
                                Executor& executor = *executors_.local();
                                for (std::size_t i = range.begin(); i < range.end(); ++i)
                                  try_one(executor, i);
                              });
    result_.runs += static_cast<std::int64_t>(batch_size);
    for (Item& item : items_) keep(item);
    cover();
    tell_ascents();
    look_closer();
  }

  // --- Where candidates come from

  /// The first places of a batch belong to ascents, of which each hunts one objective.
  void ask_ascents() {
    moves_.clear();
    if (options_.strategy != Strategy::full || generation_ < 4) return;
    const std::size_t most = batch_size / 4 / Ascent::population;
    for (std::size_t n = 0; n < std::min(most, ascents_.size()); ++n) {
      // in turn, where there are more objectives than places
      const std::size_t o =
          (n + static_cast<std::size_t>(generation_) * most) % hunt_.objectives.size();
      Random random(options_.seed, generation_, batch_size + n);
      Ascent& ascent = ascents_[o];
      if (!ascent.running()) {
        const auto near = archive_.nearest(hunt_.objectives[o], 16);
        if (near.empty()) continue;
        const Archive::Elite& from = *near[random.below(near.size())];
        ascent.start(from.candidate, from.closeness);
      }
      for (const Motion& motion : ascent.ask(random)) moves_.push_back({o, motion});
    }
  }

  void tell_ascents() {
    for (std::size_t i = 0; i < moves_.size(); i += Ascent::population) {
      const std::size_t o = moves_[i].objective;
      std::vector<double> closeness;
      for (std::size_t p = i; p < i + Ascent::population; ++p) {
        closeness.push_back(items_[p].closeness[static_cast<std::size_t>(hunt_.objectives[o])]);
      }
      ascents_[o].tell(closeness);
    }
  }

  void try_one(Executor& executor, std::size_t i) {
    Item& item = items_[i];
    Random random(options_.seed, generation_, i);
    make(executor, random, i, item.candidate);
    item.thorough = i % 8 == 7;
    const Observation& seen = executor.run(item.candidate, item.thorough);
    item.ran = seen.ran;
    item.cell = seen.cell;
    item.closeness = seen.closeness;
  }

  void make(Executor& executor, Random& random, std::size_t i, Candidate& c) {
    const std::size_t given = static_cast<std::size_t>(generation_) * batch_size + i;
    if (given < options_.seeds.size()) {
      c = options_.seeds[given];
      repair(c);
      round_operands(c, hunt_.target.kernel.operand);
      return;
    }
    switch (options_.strategy) {
      case Strategy::uniform_bits:
      case Strategy::gaussian:
        return make_blindly(random, c);
      case Strategy::byte_mutation:
        return change_bytes(random, c);
      case Strategy::full:
        break;
    }
    if (i < moves_.size()) {
      c = ascents_[moves_[i].objective].base();
      move(moves_[i].motion, c);
      repair(c);
      round_operands(c, hunt_.target.kernel.operand);
      return;
    }
    const Candidate* parent = random.chance(generation_ < 4    ? 0.0
                                            : generation_ < 32 ? 0.75
                                                               : 0.92)
                                  ? archive_.parent(objective(random), random)
                                  : nullptr;
    if (parent == nullptr) {
      generate(executor, random, c);
    } else {
      const Candidate* other = archive_.parent(objective(random), random);
      c = *parent;
      mutate(random, executor.landmarks(c.shape), hunt_.space, other == nullptr ? *parent : *other,
             c);
    }
    if (hunt_.space.poison_visible && random.chance(hunt_.sees_nan() ? 0.5 : 0x1p-6)) {
      std::vector<float>& numbers = *random.pick({&c.q, &c.k, &c.v});
      numbers[random.below(numbers.size())] = std::numeric_limits<float>::quiet_NaN();
    }
    if (hunt_.target.gate == GateChoice::certified && random.chance(0x1p-6)) {
      aim_at_verdict(random, hunt_.target, c);
      return;
    }
    const Landmarks& marks = executor.landmarks(c.shape);
    if (marks.gate_limit > 0 && random.chance(parent == nullptr ? 0.5 : 0.3)) {
      // mostly at the gate, sometimes anywhere below
      const double share = random.chance(0.75) ? 1 - random.uniform() * 0x1p-6 : random.uniform();
      aim_at_gate(marks, marks.gate_limit * share, c);
      round_operands(c, hunt_.target.kernel.operand);
    }
  }

  Objective objective(Random& random) const { return random.pick(hunt_.objectives); }

  void generate(Executor& executor, Random& random, Candidate& c) {
    const Shape& shape = random.pick(hunt_.space.shapes);
    const Landmarks& marks = executor.landmarks(shape);
    c = make_candidate(shape, make_setting(random, hunt_.space, marks, shape));
    repair(c);
    random.pick(generators()).fill(random, marks, c);
    round_operands(c, hunt_.target.kernel.operand);
  }

  // --- Baselines, which know nothing

  void make_blindly(Random& random, Candidate& c) {
    const Shape& shape = random.pick(hunt_.space.shapes);
    c = make_candidate(shape);
    const Format& f = hunt_.target.kernel.operand;
    if (options_.strategy == Strategy::uniform_bits) {
      for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
        for (float& x : *numbers) x = number_of_bits(random.bits(), f);
      }
      return;
    }
    const double q = std::ldexp(1.0, static_cast<int>(random.between(-2, 4)));
    const double k = std::ldexp(1.0, static_cast<int>(random.between(-2, 4)));
    for (float& x : c.q) x = static_cast<float>(q * random.normal());
    for (float& x : c.k) x = static_cast<float>(k * random.normal());
    for (float& x : c.v) x = static_cast<float>(random.normal());
    round_operands(c, f);
  }

  static float number_of_bits(std::uint64_t bits, const Format& f) {
    if (f == fp32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (f == bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0xffffU) << 16);
    return static_cast<float>(decode(f, bits & ((std::uint64_t{1} << f.bits()) - 1)));
  }

  void change_bytes(Random& random, Candidate& c) {
    const Candidate* parent = archive_.parent(objective(random), random);
    if (parent == nullptr || generation_ == 0) {
      c = make_candidate(random.pick(hunt_.space.shapes));
      return;
    }
    c = *parent;
    const Format& f = hunt_.target.kernel.operand;
    for (std::uint64_t changes = 1 + random.below(16); changes > 0; --changes) {
      std::vector<float>& numbers = *random.pick({&c.q, &c.k, &c.v});
      float& x = numbers[random.below(numbers.size())];
      auto bits = std::bit_cast<std::uint32_t>(x);
      const std::uint32_t mask = f == bf16 ? 0xffff0000U : 0xffffffffU;
      bits = (bits ^ static_cast<std::uint32_t>(random.bits())) & mask;
      x = std::bit_cast<float>(bits);
    }
    round_operands(c, f);
  }

  // --- What is kept, and what is looked at exactly

  void keep(Item& item) {
    item.kept = false;
    if (!item.ran) return;
    for (std::size_t o = 0; o < hunt_.objectives.size(); ++o) {
      const double closeness = item.closeness[static_cast<std::size_t>(hunt_.objectives[o])];
      if (closeness == nothing) continue;
      result_.nearest[o] = std::max(result_.nearest[o], closeness);
      // what was dismissed is not where to go on, near as it looks
      const auto dismissed = dismissed_.find({o, item.cell});
      const double worth = closeness < 0 || dismissed == dismissed_.end()
                               ? closeness
                               : -1.0 - dismissed->second.times;
      item.kept =
          archive_.offer(hunt_.objectives[o], item.cell, worth, item.candidate) || item.kept;
    }
  }

  /// Where a few of those that were kept went, stage by stage: one that went where none had been
  /// has a cell of its own.
  void cover() {
    constexpr std::size_t most = 4;
    std::vector<const Item*> some;
    if (seen_cells_.size() > (std::size_t{1} << 20)) seen_cells_.clear();
    for (const Item& item : items_) {
      if (item.kept && some.size() < most && seen_cells_.insert(item.cell).second) {
        some.push_back(&item);
      }
    }
    std::vector<std::vector<std::uint16_t>> hits(some.size());
    oneapi::tbb::parallel_for(std::size_t{0}, some.size(), [&](std::size_t i) {
      hits[i] = stage_coverage(hunt_.target, some[i]->candidate);
    });
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (coverage_.add(hits[i]) == 0) continue;
      const std::uint64_t cell = ~static_cast<std::uint64_t>(coverage_.count());
      for (const Objective o : hunt_.objectives) {
        archive_.offer(o, cell, std::min(-1.0, some[i]->closeness[static_cast<std::size_t>(o)]),
                       some[i]->candidate);
      }
    }
  }

  /// Exact diagnoses of suspicions, the strongest first. An alarm that was false raises the bar of
  /// its objective for a while, a finding does so for longer.
  void look_closer() {
    for (std::size_t o = 0; o < hunt_.objectives.size(); ++o) {
      if (generation_ < quiet_until_[o]) continue;
      const Objective objective = hunt_.objectives[o];
      const auto place = static_cast<std::size_t>(objective);
      std::vector<const Item*> suspects;
      for (const Item& item : items_) {
        if (!item.ran || !(item.closeness[place] >= std::min(alarm_[o], 0.99))) continue;
        const auto dismissed = dismissed_.find({o, item.cell});
        if (dismissed != dismissed_.end() && generation_ < dismissed->second.until) continue;
        suspects.push_back(&item);
      }
      alarm_[o] = std::max(0.0, alarm_[o] - 0.05);
      std::stable_sort(suspects.begin(), suspects.end(), [&](const Item* a, const Item* b) {
        return a->closeness[place] > b->closeness[place];
      });
      std::set<std::uint64_t> cells;  // one of each cell
      std::erase_if(suspects, [&](const Item* x) { return !cells.insert(x->cell).second; });
      if (suspects.size() > most_diagnoses) suspects.resize(most_diagnoses);
      std::vector<Diagnosis> diagnoses(suspects.size());
      oneapi::tbb::parallel_for(std::size_t{0}, suspects.size(), [&](std::size_t s) {
        diagnoses[s] = diagnose(hunt_.target, suspects[s]->candidate, objective);
      });
      bool any = false;
      for (std::size_t s = 0; s < suspects.size(); ++s) {
        ++result_.diagnoses;
        if (counts(diagnoses[s])) {
          any = true;
          add(*suspects[s], std::move(diagnoses[s]));
        } else {
          ++result_.false_alarms;
          alarm_[o] += 0.25;
          Dismissal& d = dismissed_[{o, suspects[s]->cell}];
          d.until = generation_ + (std::uint64_t{4} << std::min(d.times, 8));
          ++d.times;
          archive_.lower(hunt_.objectives[o], suspects[s]->cell, -1.0 - d.times);
        }
      }
      if (any) quiet_until_[o] = generation_ + 16;
      if (!any && suspects.size() == most_diagnoses) quiet_until_[o] = generation_ + 4;
    }
  }

  bool counts(const Diagnosis& d) const {
    return d.met && (hunt_.event.empty() || d.event == hunt_.event) &&
           (hunt_.stage.empty() || d.stage == hunt_.stage);
  }

  void add(const Item& item, Diagnosis diagnosis) {
    Finding finding;
    finding.target = hunt_.target;
    finding.candidate = item.candidate;
    finding.objective = diagnosis.objective;
    finding.diagnosis = std::move(diagnosis);
    if (!classes_.insert(finding.class_name()).second) return;
    finding.text = explain(finding.target, finding.candidate, finding.diagnosis);
    if (options_.found) options_.found(finding);
    result_.findings.push_back(std::move(finding));
    result_.found_at.push_back(result_.runs);
    result_.seconds_to_find.push_back(seconds());
  }

  bool report() {
    const double now = seconds();
    if (options_.save && now - saved_ > 5) save();
    if (!options_.progress) return true;
    HuntProgress p;
    p.seconds = now;
    p.runs = result_.runs;
    p.cells = archive_.cells();
    p.coverage = coverage_.count();
    p.findings = static_cast<std::int64_t>(result_.findings.size());
    p.nearest = result_.nearest;
    return options_.progress(p);
  }

  void save() {
    saved_ = seconds();
    archive_.settle();
    std::vector<const Candidate*> worth;
    for (const Objective o : hunt_.objectives) {
      for (const Archive::Elite* e : archive_.nearest(o, 24)) worth.push_back(&e->candidate);
    }
    options_.save(worth);
  }

  /// Of a cell in which an exact diagnosis did not confirm what looked near.
  struct Dismissal {
    int times = 0;
    std::uint64_t until = 0;
  };

  struct Move {
    std::size_t objective;
    Motion motion;
  };

  const Hunt& hunt_;
  const HuntOptions& options_;
  Archive archive_;
  oneapi::tbb::enumerable_thread_specific<std::unique_ptr<Executor>> executors_;
  std::vector<Item> items_;
  std::vector<Ascent> ascents_;
  std::vector<Move> moves_;
  std::vector<double> alarm_;
  std::vector<std::uint64_t> quiet_until_;
  std::set<std::string> classes_;
  std::set<std::uint64_t> seen_cells_;
  Coverage coverage_;
  std::map<std::pair<std::size_t, std::uint64_t>, Dismissal> dismissed_;
  HuntResult result_;
  std::uint64_t generation_ = 0;
  std::chrono::steady_clock::time_point start_;
  double saved_ = 0;
};

}  // namespace

std::string_view to_text(Strategy strategy) {
  switch (strategy) {
    case Strategy::uniform_bits:
      return "uniform-bits";
    case Strategy::gaussian:
      return "gaussian";
    case Strategy::byte_mutation:
      return "byte-mutation";
    default:
      return "full";
  }
}

Strategy parse_strategy(const std::string& text) {
  for (const Strategy s :
       {Strategy::full, Strategy::uniform_bits, Strategy::gaussian, Strategy::byte_mutation}) {
    if (to_text(s) == text) return s;
  }
  throw InputError(fmt::format(
      "--strategy: found '{}', expected one of full, uniform-bits, gaussian, byte-mutation", text));
}

HuntResult hunt(const Hunt& hunt, const HuntOptions& options) {
  return Search(hunt, options).run();
}

}  // namespace headroom::fuzz
