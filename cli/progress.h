// A progress line on stderr for long work: bar, rate and time left. Nothing is written unless the
// stream is a terminal and the work has lasted longer than a delay, so pipes and short runs stay
// clean.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace headroom::cli {

/// One line, without a carriage return: "label [####....]  40%  12.3/s  8 s left".
/// `done` above `total` is shown as complete; no time left is shown before the first item is done.
std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total,
                          std::chrono::duration<double> elapsed);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// Counts to `total` items of any size; draws to stderr when that is a terminal.
  Progress(std::string label, std::uint64_t total);

  /// As above on a given stream; `visible` overrides the terminal test, `delay` the two seconds.
  Progress(std::string label, std::uint64_t total, std::FILE* stream, bool visible,
           Clock::duration delay);

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Clears the line if one was drawn.
  ~Progress();

  /// Counts n more items as done. Any thread may call it; threads never wait for one another here.
  void advance(std::uint64_t n = 1);

  /// Clears the line now (before a message on the same terminal); later calls draw it again.
  void clear();

  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void draw(Clock::time_point now);

  const std::string label_;
  const std::uint64_t total_;
  std::FILE* const stream_;
  const bool visible_;
  const Clock::time_point start_;
  std::atomic<std::uint64_t> done_{0};
  std::mutex drawing_;
  Clock::time_point next_draw_;  // under drawing_
  bool drawn_ = false;           // under drawing_
};

}  // namespace headroom::cli
