// Plain-text tables for people: aligned columns, two spaces between them, no trailing blanks.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cli {

/// How a cell is coloured where colour is allowed; without colour it changes nothing.
enum class Tone { plain, good, warning, bad, dim };

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

/// Text of one cell. Control characters (a tensor's name may hold any byte) are shown escaped, so
/// that no input can move the cursor or forge a row.
struct Cell {
  Cell(const std::string& text, Tone tone = Tone::plain);  // NOLINT(google-explicit-constructor)
  Cell(const char* text);                                  // NOLINT(google-explicit-constructor)

  std::string text;
  Tone tone = Tone::plain;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  /// Requires: cells.size() == number of columns (std::invalid_argument otherwise).
  void add_row(std::vector<Cell> cells);

  std::size_t row_count() const { return rows_.size(); }

  /// The title line, then one line a row, each ended by '\n'. With colour, ANSI sequences surround
  /// the text of cells whose tone is not plain; the columns stay aligned.
  std::string render(bool colour) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// True only if `stream` is a terminal and NO_COLOR is unset or empty (https://no-color.org).
bool colour_wanted(std::FILE* stream);

/// `text` between the ANSI sequences of `tone`, or unchanged without colour.
std::string toned(std::string_view text, Tone tone, bool colour);

/// `text` with every control character (below 0x20, and 0x7f) replaced by \xNN.
std::string printable(std::string_view text);

}  // namespace headroom::cli
