// The man page, from the description of the program.
#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/cli/inspect/described.h"

namespace tessera::cli {
namespace {

// Returns the text with the characters escaped that mean something to man: backslashes, hyphens
// (which would be typographic ones) and dots and quotes that begin a line.
std::string escaped(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    begins = c == '\n';
  }
  return out;
}

// Returns lines that keep their breaks and blanks: tables and examples.
std::string as_written(const std::string& text) {
  return ".nf\n" + escaped(std::string(trim(text))) + "\n.fi\n";
}

std::string options_text(const DescribedCommand& command) {
  std::string out;
  for (const DescribedOption& option : command.options) {
    out += fmt::format(".TP\n\\fB{}\\fR", escaped(join(option.names, ", ")));
    if (!option.value.empty() && !option.is_argument())
      out += fmt::format(" \\fI{}\\fR", escaped(option.value));
    out += "\n" + escaped(option.help) + "\n";
  }
  return out;
}

}  // namespace

std::string man_page(const DescribedProgram& program) {
  std::string out = fmt::format(
      ".TH TESSERA 1 \"\" \"tessera {}\" \"User Commands\"\n"
      ".SH NAME\ntessera \\- {}\n"
      ".SH SYNOPSIS\n\\fBtessera\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n"
      ".SH COMMANDS\n",
      program.version, escaped(program.help));
  for (const DescribedCommand& command : program.commands) {
    out += fmt::format(".SS {}\n{}\n{}", escaped(command.words()), escaped(command.help),
                       options_text(command));
    if (!command.footer.empty()) out += ".PP\n" + as_written(command.footer);
  }
  return out + ".SH NOTES\n" + as_written(program.footer);
}

}  // namespace tessera::cli
