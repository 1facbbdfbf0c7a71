#include "cli/table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace headroom::cli {
namespace {

constexpr std::string_view column_gap = "  ";

std::string_view tone_sequence(Tone tone) {
  switch (tone) {
    case Tone::good:
      return "\x1b[32m";
    case Tone::warning:
      return "\x1b[33m";
    case Tone::bad:
      return "\x1b[31m";
    case Tone::dim:
      return "\x1b[2m";
    case Tone::plain:
      break;
  }
  return "";
}

// Columns on the screen: code points of UTF-8 (bytes that do not continue one). Wide and combining
// characters are not used in our own texts.
std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

void append_cell(std::string& line, const Cell& cell, const Column& column, std::size_t width,
                 bool colour) {
  const std::string padding(width - display_width(cell.text), ' ');
  if (column.align == Align::right) line += padding;
  line += toned(cell.text, cell.tone, colour);
  if (column.align == Align::left) line += padding;
}

void trim_right(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

Cell::Cell(const std::string& text, Tone tone) : text(printable(text)), tone(tone) {}
Cell::Cell(const char* text) : text(printable(text)) {}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<Cell> cells) {
  if (cells.size() != columns_.size()) {
    throw std::invalid_argument("a table row has " + std::to_string(cells.size()) +
                                " cells, the table has " + std::to_string(columns_.size()) +
                                " columns");
  }
  rows_.push_back(std::move(cells));
}

std::string Table::render(bool colour) const {
  std::vector<std::vector<Cell>> lines;
  lines.reserve(rows_.size() + 1);
  std::vector<Cell>& titles = lines.emplace_back();
  for (const Column& column : columns_) titles.emplace_back(column.title);
  lines.insert(lines.end(), rows_.begin(), rows_.end());

  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& cells : lines) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(cells[i].text));
    }
  }

  std::string out;
  for (const auto& cells : lines) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += column_gap;
      append_cell(line, cells[i], columns_[i], widths[i], colour);
    }
    trim_right(line);
    out += line + '\n';
  }
  return out;
}

bool colour_wanted(std::FILE* stream) {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && isatty(fileno(stream)) == 1;
}

std::string toned(std::string_view text, Tone tone, bool colour) {
  if (!colour || tone == Tone::plain) return std::string(text);
  return std::string(tone_sequence(tone)) + std::string(text) + "\x1b[0m";
}

std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20U || code == 0x7FU) {
      out += "\\x";
      out += digits[code >> 4U];
      out += digits[code & 0xFU];
    } else {
      out += byte;
    }
  }
  return out;
}

}  // namespace headroom::cli
