#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace headroom::cli {
namespace {

constexpr std::size_t bar_width = 24;
constexpr std::chrono::seconds first_draw_delay{2};
constexpr std::chrono::milliseconds redraw_interval{100};
constexpr const char* clear_line = "\r\x1b[K";

std::string time_text(double seconds) {
  if (seconds < 60) return fmt::format("{} s", static_cast<long>(seconds));
  if (seconds < 3600) return fmt::format("{} min", static_cast<long>(seconds / 60));
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total,
                          std::chrono::duration<double> elapsed) {
  const std::uint64_t shown = std::min(done, total);
  const double fraction =
      total == 0 ? 1.0 : static_cast<double>(shown) / static_cast<double>(total);
  const auto filled =
      std::min(bar_width, static_cast<std::size_t>(fraction * static_cast<double>(bar_width)));
  std::string line =
      fmt::format("{} [{}{}] {:3}%", label, std::string(filled, '#'),
                  std::string(bar_width - filled, '.'), static_cast<int>(fraction * 100));
  if (shown > 0 && elapsed.count() > 0) {
    const double rate = static_cast<double>(shown) / elapsed.count();
    line += fmt::format("  {:.3g}/s", rate);
    if (shown < total) {
      line += fmt::format("  {} left", time_text(static_cast<double>(total - shown) / rate));
    }
  }
  return line;
}

Progress::Progress(std::string label, std::uint64_t total)
    : Progress(std::move(label), total, stderr, isatty(fileno(stderr)) == 1, first_draw_delay) {}

Progress::Progress(std::string label, std::uint64_t total, std::FILE* stream, bool visible,
                   Clock::duration delay)
    : label_(std::move(label)),
      total_(total),
      stream_(stream),
      visible_(visible),
      start_(Clock::now()),
      next_draw_(start_ + delay) {}

Progress::~Progress() { clear(); }

void Progress::advance(std::uint64_t n) {
  done_.fetch_add(n, std::memory_order_relaxed);
  if (!visible_) return;
  const std::unique_lock lock(drawing_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread is drawing: its successor will show this item
  const Clock::time_point now = Clock::now();
  if (now >= next_draw_) draw(now);
}

void Progress::draw(Clock::time_point now) {
  const std::string line = progress_line(label_, done(), total_, now - start_);
  std::fprintf(stream_, "%s%s", clear_line, line.c_str());
  std::fflush(stream_);
  drawn_ = true;
  next_draw_ = now + redraw_interval;
}

void Progress::clear() {
  const std::scoped_lock lock(drawing_);
  if (!drawn_) return;
  std::fprintf(stream_, "%s", clear_line);
  std::fflush(stream_);
  drawn_ = false;
}

}  // namespace headroom::cli
