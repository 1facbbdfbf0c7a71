#include "cli/table.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace headroom::cli {
namespace {

Table two_columns() { return Table({{"head", Align::left}, {"margin", Align::right}}); }

TEST(Table, AlignsLeftAndRightWithoutTrailingBlanks) {
  Table table = two_columns();
  table.add_row({"layer0.h10", "3.5"});
  table.add_row({"a", "-120.25"});
  EXPECT_EQ(table.render(false),
            "head         margin\n"
            "layer0.h10      3.5\n"
            "a           -120.25\n");

  Table left({{"first", Align::left}, {"last", Align::left}});
  left.add_row({"x", ""});
  EXPECT_EQ(left.render(false), "first  last\nx\n");
}

TEST(Table, EmptyTableHasOnlyItsTitles) {
  EXPECT_EQ(two_columns().render(false), "head  margin\n");
  EXPECT_EQ(two_columns().row_count(), 0U);
}

TEST(Table, RefusesRowsOfAnotherWidth) {
  Table table = two_columns();
  EXPECT_THROW(table.add_row({"only one"}), std::invalid_argument);
  EXPECT_THROW(table.add_row({"a", "b", "c"}), std::invalid_argument);
  EXPECT_EQ(table.row_count(), 0U);
}

TEST(Table, ColourSurroundsTextAndKeepsAlignment) {
  Table table = two_columns();
  table.add_row({Cell("ok", Tone::good), "1"});
  table.add_row({"longer", Cell("22", Tone::bad)});
  EXPECT_EQ(table.render(true),
            "head    margin\n"
            "\x1b[32mok\x1b[0m           1\n"
            "longer      \x1b[31m22\x1b[0m\n");
  EXPECT_EQ(table.render(false),
            "head    margin\n"
            "ok           1\n"
            "longer      22\n");
}

TEST(Table, CountsCodePointsNotBytes) {
  Table table = two_columns();
  table.add_row({"\u03bb\u2082", "1"});  // two code points, five bytes
  table.add_row({"ab", "1"});
  EXPECT_EQ(table.render(false),
            "head  margin\n"
            "\u03bb\u2082         1\n"
            "ab         1\n");
}

TEST(Table, ControlCharactersCannotForgeRowsOrColours) {
  Table table = two_columns();
  table.add_row({"q\n\x1b[32mcertified", "\x7f"});
  EXPECT_EQ(table.render(false),
            "head                    margin\n"
            "q\\x0a\\x1b[32mcertified    \\x7f\n");
}

TEST(Printable, EscapesEveryControlByteAndNothingElse) {
  for (int code = 0; code < 256; ++code) {
    const std::string text(1, static_cast<char>(code));
    if (code < 0x20 || code == 0x7F) {
      char expected[8];
      std::snprintf(expected, sizeof expected, "\\x%02x", static_cast<unsigned>(code));
      EXPECT_EQ(printable(text), expected);
    } else {
      EXPECT_EQ(printable(text), text);
    }
  }
}

TEST(Toned, LeavesPlainTextAlone) {
  EXPECT_EQ(toned("x", Tone::plain, true), "x");
  EXPECT_EQ(toned("x", Tone::bad, false), "x");
  EXPECT_EQ(toned("x", Tone::dim, true), "\x1b[2mx\x1b[0m");
}

TEST(ColourWanted, NotForFiles) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(colour_wanted(file.get()));
}

}  // namespace
}  // namespace headroom::cli
