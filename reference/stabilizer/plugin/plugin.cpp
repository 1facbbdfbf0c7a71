#include "reference/stabilizer/plugin/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <mutex>

#include "reference/head/small_file.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/plugin/guarded_buffer.h"
#include "reference/stabilizer/plugin/headroom_stabilizer.h"

namespace headroom {
namespace {

constexpr std::size_t most_library_bytes = std::size_t{1} << 30;
constexpr std::size_t most_state_bytes = std::size_t{1} << 32;
constexpr std::size_t longest_name = 64;
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

struct Plugin {
  PluginDescription description;
  const headroom_stabilizer* table = nullptr;
  std::vector<std::string> parameter_order;
};

/// Never shrinks, so that references to its elements stay good.
struct Registry {
  std::mutex mutex;
  std::deque<Plugin> plugins;
};
Registry& registry() {
  static Registry all;
  return all;
}

Plugin& find(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::string names;
  for (Plugin& p : all.plugins) {
    if (p.description.loop.name == name) return p;
    names += (names.empty() ? "" : ", ") + p.description.loop.name;
  }
  throw InputError(
      fmt::format("stabilizer: found \"{}\", expected a plug-in that --plugin loaded{}", name,
                  names.empty() ? "" : ": " + names));
}

// --- Loading

bool is_name(const char* text, std::string_view also) {
  if (text == nullptr || *text == 0 || std::strlen(text) > longest_name) return false;
  return std::all_of(text, text + std::strlen(text), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           also.find(c) != std::string_view::npos;
  });
}

/// One printable line.
std::string line_of(const char* text) {
  std::string line(text == nullptr ? "" : text, 0, text == nullptr ? 0 : strnlen(text, 240));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

std::string sha256_of(const std::string& bytes, const std::string& path) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1) {
    throw InputError(path + ": cannot compute its SHA-256");
  }
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

[[noreturn]] void refuse(const std::string& path, const std::string& found,
                         const std::string& expected) {
  throw InputError(fmt::format("{}: found {}, expected {}", path, found, expected));
}

const headroom_stabilizer* entry_of(const std::string& path) {
  const std::uint32_t before = _mm_getcsr();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::uint32_t after = _mm_getcsr();
  _mm_setcsr(before);
  if (library == nullptr) {
    throw InputError(fmt::format("{}: cannot be loaded: {}", path, line_of(dlerror())));
  }
  constexpr std::uint32_t modes = 0xffc0;  // all but the exception flags
  if ((after & modes) != (before & modes)) {
    refuse(path, "a library that turns flushing on (-ffast-math when it was linked)",
           "one that leaves the floating-point environment alone");
  }
  if (const std::string wrong = floating_point_self_check(); !wrong.empty()) {
    refuse(path, "that floating-point arithmetic is no longer IEEE's: " + wrong,
           "a library that leaves the environment alone");
  }
  using Entry = const headroom_stabilizer* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "headroom_stabilizer_entry"));
  if (entry == nullptr) {
    refuse(path, "no function headroom_stabilizer_entry", "a plug-in (headroom_stabilizer.h)");
  }
  const headroom_stabilizer* table = entry();
  if (table == nullptr) refuse(path, "no stabilizer", "a table from headroom_stabilizer_entry()");
  if (table->abi != HEADROOM_STABILIZER_ABI) {
    refuse(path, fmt::format("version {} of the interface", table->abi),
           fmt::format("version {}", HEADROOM_STABILIZER_ABI));
  }
  if (table->size < sizeof(headroom_stabilizer)) {
    refuse(path, fmt::format("a table of {} bytes", table->size),
           fmt::format("{}", sizeof(headroom_stabilizer)));
  }
  return table;
}

Plugin checked(const std::string& path, const std::string& sha256,
               const headroom_stabilizer* table) {
  if (!is_name(table->name, "-_")) {
    refuse(path, "a name that is none: '" + line_of(table->name) + "'",
           "at most 64 letters, digits, '-' and '_'");
  }
  if (table->state_bytes == nullptr || table->init == nullptr || table->before_loop == nullptr ||
      table->tile == nullptr) {
    refuse(path, "a callback missing", "state_bytes, init, before_loop and tile");
  }
  if ((table->flags & ~(HEADROOM_COUPLES_ROWS | HEADROOM_STARTS_AT_SINK)) != 0) {
    refuse(path, fmt::format("flags {:#x}", table->flags), "flags of this version");
  }
  Plugin plugin;
  plugin.table = table;
  PluginDescription& d = plugin.description;
  d.path = path;
  d.sha256 = sha256;
  d.loop.name = std::string(plugin_prefix) + table->name;
  d.loop.summary = line_of(table->summary);
  d.has_gate = table->gate != nullptr;
  d.starts_at_sink = (table->flags & HEADROOM_STARTS_AT_SINK) != 0;
  if (table->parameter_count > 64 || (table->parameter_count > 0 && table->parameters == nullptr)) {
    refuse(path, fmt::format("{} parameters", table->parameter_count), "a table of at most 64");
  }
  for (std::size_t i = 0; i < table->parameter_count; ++i) {
    const headroom_parameter& p = table->parameters[i];
    if (!is_name(p.name, "_")) {
      refuse(path, fmt::format("parameter {} named '{}'", i, line_of(p.name)),
             "letters, digits and '_'");
    }
    if (!d.loop.parameters.emplace(p.name, p.value).second) {
      refuse(path, fmt::format("parameter {} twice", p.name), "it once");
    }
    plugin.parameter_order.emplace_back(p.name);
  }
  if (table->fallback != nullptr) {
    d.fallback = line_of(table->fallback);
    if (d.fallback.starts_with(plugin_prefix)) {
      refuse(path, "fallback '" + d.fallback + "'", "a built-in stabilizer");
    }
    make_loop_stabilizer(d.fallback);
  }
  return plugin;
}

// --- Calls

thread_local const char* current_stage = "";

/// Names the callback while it runs and checks what it may have changed.
class Call {
 public:
  explicit Call(const char* stage) : before_(_mm_getcsr()) { current_stage = stage; }
  ~Call() { current_stage = ""; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Throws StabilizerFault if rounding or flushing is not what it was, and puts it right.
  void check_environment(const std::string& name) const {
    constexpr std::uint32_t modes = 0xffc0;
    const std::uint32_t after = _mm_getcsr();
    if ((after & modes) == (before_ & modes)) return;
    _mm_setcsr(before_);
    throw StabilizerFault(current_stage, "environment",
                          fmt::format("{}: {} returned with another floating-point environment "
                                      "(MXCSR {:#x}, it was {:#x})",
                                      name, current_stage, after, before_));
  }

 private:
  std::uint32_t before_;
};

headroom_format described(const Format& f) {
  return {f.precision, f.emin, f.emax, static_cast<float>(f.max_finite())};
}

const LoopArithmetic& arithmetic(const headroom_kernel* kernel) {
  return *static_cast<const LoopArithmetic*>(kernel->context);
}

headroom_kernel described(const LoopArithmetic& a) {
  headroom_kernel k{};
  k.size = sizeof k;
  k.base = a.model().exponent.base == ExponentBase::two ? 2 : 0;
  k.queries = a.queries();
  k.keys = a.keys();
  k.padded_keys = a.padded_keys();
  k.channels = a.channels();
  k.key_block = a.key_block();
  k.query_block = a.model().tiles.queries;
  k.fused = a.fused() ? 1 : 0;
  k.factor = a.factor();
  k.score_factor = a.score_factor();
  k.largest_weight = a.largest_weight();
  k.largest_value = a.largest_value();
  k.sink = a.sink().value_or(no_number);
  k.softcap = a.softcap().value_or(no_number);
  k.operand = described(a.model().operand);
  k.norm = described(a.model().stabilizer.norm);
  k.store = described(a.model().stabilizer.store);
  k.exponent = described(a.model().exponent.format);
  k.context = &a;
  k.query = [](const headroom_kernel* h, int64_t row) { return arithmetic(h).query(row); };
  k.key = [](const headroom_kernel* h, int64_t key) { return arithmetic(h).key(key); };
  k.sees = [](const headroom_kernel* h, int64_t row, int64_t key) {
    return arithmetic(h).sees(row, key) ? 1 : 0;
  };
  k.score = [](const headroom_kernel* h, int64_t row, const float* key) {
    return arithmetic(h).score(row, key);
  };
  k.scaled = [](const headroom_kernel* h, float s) { return arithmetic(h).scaled(s); };
  k.exponentials = [](const headroom_kernel* h, const float* x, float* y, size_t n) {
    arithmetic(h).exponentials(x, y, n);
  };
  k.round_exponent = [](const headroom_kernel* h, double x) {
    return arithmetic(h).round_exponent(x);
  };
  k.round_store = [](const headroom_kernel* h, double x) { return arithmetic(h).store(x); };
  return k;
}

/// One instance of a plug-in: its state, and the arrays it may write to.
class PluginLoop final : public LoopStabilizer {
 public:
  PluginLoop(const Plugin& plugin, const LoopParameters& complete)
      : plugin_(plugin), table_(*plugin.table) {
    for (const std::string& name : plugin.parameter_order) {
      parameters_.push_back(complete.at(name));
    }
  }
  ~PluginLoop() override { finish_quietly(); }
  PluginLoop(const PluginLoop&) = delete;
  PluginLoop& operator=(const PluginLoop&) = delete;

  std::string_view name() const override { return plugin_.description.loop.name; }

  void init(const LoopArithmetic& kernel) override {
    if (started_) finish();
    kernel_ = described(kernel);
    std::size_t bytes = 0;
    call("init", [&] { bytes = table_.state_bytes(&kernel_, parameters_.data()); });
    if (bytes > most_state_bytes) {
      fault("init", "no-answer",
            fmt::format("state_bytes gave {}, expected at most {}", bytes, most_state_bytes));
    }
    state_.reset(bytes);
    headroom_constants constants{};
    int refused = 0;
    call("init", [&] { refused = table_.init(state(), &kernel_, parameters_.data(), &constants); });
    if (refused != 0) {
      fault("init", "refused", fmt::format("init returned {}, expected 0", refused));
    }
    started_ = true;
    offset_ = constants.offset;
    initial_denominator_ = constants.initial_denominator;
    if (!std::isfinite(offset_) || !std::isfinite(initial_denominator_)) {
      fault("init", "no-answer",
            fmt::format("init gave offset {} and initial_denominator {}, expected numbers", offset_,
                        initial_denominator_));
    }
    accepts_ = true;
    if (table_.gate == nullptr) return;
    headroom_gate gate{0, 0, no_number, no_number};
    call("gate", [&] { table_.gate(state(), &kernel_, &gate); });
    if (gate.accepts != 0 && gate.accepts != 1) {
      fault("gate", "no-answer", fmt::format("gate answered {}, expected 0 or 1", gate.accepts));
    }
    accepts_ = gate.accepts == 1;
  }

  bool gate() const override { return accepts_; }
  bool couples_rows() const override { return (table_.flags & HEADROOM_COUPLES_ROWS) != 0; }
  bool starts_at_sink() const override { return (table_.flags & HEADROOM_STARTS_AT_SINK) != 0; }
  float initial_denominator() const override { return initial_denominator_; }
  float offset() const override { return offset_; }
  std::string_view fallback() const override { return plugin_.description.fallback; }

  void before_loop(std::span<const std::int64_t> rows) override {
    const std::size_t n = rows.size();
    if (n != rows_) {
      rows_ = n;
      shift_.reset(n * sizeof(float));
      correction_.reset(n * sizeof(float));
      recompute_.reset(n);
    }
    call("before-loop",
         [&] { table_.before_loop(state(), &kernel_, rows.data(), static_cast<std::int64_t>(n)); });
  }

  void order(std::vector<std::int64_t>& tiles) const override {
    if (table_.order == nullptr) return;
    std::vector<std::int64_t> given = tiles;
    call("order", [&] {
      table_.order(state(), &kernel_, given.data(), static_cast<std::int64_t>(given.size()));
    });
    if (!std::is_permutation(given.begin(), given.end(), tiles.begin(), tiles.end())) {
      fault("order", "no-answer", "order gave other tiles, expected the same in another order");
    }
    tiles = std::move(given);
  }

  void tile(const TileScores& scores, const TileDecision& decision) override {
    const headroom_tile shown = {scores.scores,    scores.rows, scores.stride,       scores.keys,
                                 scores.first_key, scores.tile, scores.last ? 1 : 0, 0};
    const std::size_t n = rows_;
    std::memcpy(shift_.data(), decision.shift, n * sizeof(float));
    std::memcpy(correction_.data(), decision.correction, n * sizeof(float));
    std::memcpy(recompute_.data(), decision.recompute, n);
    const headroom_decision mine = {reinterpret_cast<float*>(shift_.data()),
                                    reinterpret_cast<float*>(correction_.data()),
                                    reinterpret_cast<std::uint8_t*>(recompute_.data())};
    call("tile", [&] { table_.tile(state(), &kernel_, &shown, &mine); });
    std::memcpy(decision.shift, shift_.data(), n * sizeof(float));
    std::memcpy(decision.correction, correction_.data(), n * sizeof(float));
    for (std::size_t r = 0; r < n; ++r) {
      const std::uint8_t again = mine.recompute[r];
      if (again > 1 || (again == 1 && table_.fallback == nullptr)) {
        fault("tile", "no-answer",
              again > 1 ? fmt::format("tile set recompute to {}, expected 0 or 1", again)
                        : "tile asked for a fallback, expected none: it names none");
      }
      decision.recompute[r] = again;
    }
  }

 private:
  void* state() const { return state_.data(); }

  [[noreturn]] void fault(const char* stage, const char* event, const std::string& what) const {
    throw StabilizerFault(stage, event, plugin_.description.loop.name + ": " + what);
  }

  template <typename Use>
  void call(const char* stage, const Use& use) const {
    const Call now(stage);
    use();
    now.check_environment(plugin_.description.loop.name);
    for (const GuardedBuffer* b : {&state_, &shift_, &correction_, &recompute_}) {
      if (b->intact()) continue;
      fault(stage, "out-of-bounds",
            fmt::format("{} wrote outside of {}, which has {} bytes", stage, b->name(), b->size()));
    }
  }

  void finish() {
    started_ = false;
    if (table_.finish != nullptr) {
      call("finish", [&] { table_.finish(state(), &kernel_); });
    }
  }
  /// A fault of the last call is lost: there is nothing left that it could spoil.
  void finish_quietly() {
    if (!started_) return;
    try {
      finish();
    } catch (const StabilizerFault&) {
    }
  }

  const Plugin& plugin_;
  const headroom_stabilizer& table_;
  std::vector<double> parameters_;
  headroom_kernel kernel_{};
  GuardedBuffer state_{"the state"}, shift_{"shift"}, correction_{"correction"},
      recompute_{"recompute"};
  std::size_t rows_ = 0;
  bool started_ = false, accepts_ = true;
  float offset_ = 0, initial_denominator_ = 0;
};

}  // namespace

const PluginDescription& load_plugin(const std::string& path) {
  // dlopen searches the system for names without a slash
  std::error_code error;
  const std::string full = std::filesystem::canonical(path, error).string();
  if (error) throw InputError(fmt::format("{}: {}", path, error.message()));
  const std::string sha256 = sha256_of(read_small_file(full, most_library_bytes), path);
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    for (const Plugin& p : all.plugins) {
      if (p.description.path == full && p.description.sha256 == sha256) {
        return p.description;
      }
    }
  }
  Plugin made = checked(full, sha256, entry_of(full));
  const std::lock_guard lock(all.mutex);
  for (Plugin& p : all.plugins) {
    if (p.description.loop.name != made.description.loop.name) continue;
    throw InputError(fmt::format("{}: found the name {}, which {} has, expected one of its own",
                                 path, made.description.loop.name, p.description.path));
  }
  return all.plugins.emplace_back(std::move(made)).description;
}

const PluginDescription& find_plugin(const std::string& name) { return find(name).description; }

LoopParameters plugin_parameters(const std::string& name, const LoopParameters& given) {
  const Plugin& plugin = find(name);
  LoopParameters complete = plugin.description.loop.parameters;
  for (const auto& [key, value] : given) {
    const auto at = complete.find(key);
    if (at == complete.end()) {
      std::string keys;
      for (const std::string& k : plugin.parameter_order) keys += (keys.empty() ? "" : ", ") + k;
      throw InputError(fmt::format("stabilizer {}: found parameter \"{}\", expected {}", name, key,
                                   keys.empty() ? "none" : "one of " + keys));
    }
    at->second = value;
  }
  return complete;
}

std::unique_ptr<LoopStabilizer> make_plugin_loop(const std::string& name,
                                                 const LoopParameters& parameters) {
  const Plugin& plugin = find(name);
  const LoopParameters complete = plugin_parameters(name, parameters);
  return std::make_unique<PluginLoop>(plugin, complete);
}

}  // namespace headroom
