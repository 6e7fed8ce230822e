#include "tessera/export/shell.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// Splits a line into words. A quote that does not end on the line is passed over, so a text of flags
// over several lines reads as those flags.
std::vector<std::string> words_of_line(const std::string& line) {
  std::vector<std::string> out;
  std::string word;
  bool is_open = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && !is_open && c == '#') break;
    if (quote == 0 && c == '\\' && i + 1 == line.size()) break;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      is_open = true;
      if (line.find(c, i + 1) != std::string::npos) quote = c;
    } else if (quote == 0 && (c == ' ' || c == '\t')) {
      if (is_open) out.push_back(std::exchange(word, {}));
      is_open = false;
    } else {
      is_open = true;
      word += c;
    }
  }
  if (is_open) out.push_back(word);
  return out;
}

class Script {
 public:
  SaidKeys read(const std::string& text) {
    int number = 0;
    for (const std::string& line : split_text(text, '\n')) {
      ++number;
      read_line(line, number);
    }
    return std::move(flags_);
  }

 private:
  void read_line(const std::string& line, int number) {
    std::vector<std::string> words = words_of_line(line);
    if (!goes_on_) {
      takes_values_ = false;
      skips_ = !words.empty() && is_other_command(words.front());
    }
    for (const std::string& word : words) {
      skips_ = skips_ && !is_launcher(word);
      if (!skips_ && !word.empty()) read_word(word, number);
    }
    goes_on_ = std::string_view(trim(line)).ends_with('\\');
    // Inside a list of words a new line is a new flag or value.
    if (in_list_) goes_on_ = true;
  }

  static bool is_launcher(const std::string& word) {
    const std::string name = word.substr(word.rfind('/') + 1);
    return name == "torchrun" || name == "accelerate" || name == "deepspeed" ||
           name.starts_with("python") || name.ends_with(".py");
  }
  // Returns whether a command that begins with this word is another program's, whose options are
  // skipped until the name of a launcher.
  static bool is_other_command(const std::string& first) {
    const bool sets = is_name(first.substr(0, std::min(first.find('='), first.find("+=")))) &&
                      first.find('=') != std::string::npos;
    return !sets && !first.empty() && !first.starts_with("--") && first != ")" &&
           first != "export" && first != "local" && first != "readonly" && !is_launcher(first);
  }

  void read_word(const std::string& given, int number) {
    std::string word = given;
    if (word == ")" || word == ");") {
      in_list_ = takes_values_ = false;
      return;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals == std::string::npos ? 0 : equals);
    const bool adds = name.ends_with('+');
    if (!in_list_ && is_name(adds ? name.substr(0, name.size() - 1) : name)) {
      assign(name, word.substr(equals + 1), number);
      return;
    }
    if (word.find("--") == 0 && word.find(' ') != std::string::npos) {
      for (const std::string& part : words_of_line(word)) read_word(part, number);
      return;
    }
    bool closes = false;
    if (in_list_ && word.ends_with(')') && word.find('(') == std::string::npos) {
      closes = true;
      word.pop_back();
    }
    add(word, number);
    if (closes) in_list_ = takes_values_ = false;
  }

  void assign(const std::string& name, std::string value, int number) {
    takes_values_ = false;
    if (value.starts_with('(')) {
      in_list_ = true;
      value.erase(0, 1);
      if (!value.empty()) read_word(value, number);
      return;
    }
    if (value.starts_with("--") || value.find(" --") != std::string::npos) {
      for (const std::string& part : words_of_line(value)) read_word(part, number);
      return;
    }
    variables_[name] = expanded(value);
  }

  void add(const std::string& word, int number) {
    if (word.starts_with("--") && word.size() > 2) {
      const size_t equals = word.find('=');
      std::string flag = word.substr(2, equals == std::string::npos ? equals : equals - 2);
      std::replace(flag.begin(), flag.end(), '_', '-');
      const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
      flags_.push_back({flag, value.empty() ? "true" : expanded(value), number});
      takes_values_ = true;
      has_value_ = !value.empty();
      return;
    }
    // An override "model.hidden_size=8"; in a list of words also "mixed_precision=bf16_mixed".
    const size_t sets = word.find('=');
    if (sets != std::string::npos && sets > 0 && (in_list_ || word.find('.') < sets) &&
        std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(sets),
                    [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; })) {
      flags_.push_back({word.substr(0, sets), expanded(word.substr(sets + 1)), number});
      takes_values_ = false;
      return;
    }
    // "-m" and the like end the values of the flag before; "${ARGS[@]}" is a list that was read.
    const bool ends = word == "|" || word == "||" || word == "&&" || word == ";" || word == "&" ||
                      word.starts_with('>') || word.starts_with("2>") || word.ends_with(".py") ||
                      word.find("[@]") != std::string::npos || word == "$@" ||
                      (word.starts_with('-') && !parse_int(word));
    if (ends) takes_values_ = false;
    if (!takes_values_ || flags_.empty()) return;
    std::string& value = flags_.back().value;
    value = has_value_ ? value + " " + expanded(word) : expanded(word);
    has_value_ = true;
  }

  // Replaces $NAME, ${NAME} and ${NAME:-default} where the script sets NAME or has the default.
  std::string expanded(const std::string& text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '$' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const bool braces = text[i + 1] == '{';
      const size_t begin = i + (braces ? 2 : 1);
      size_t end = begin;
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
        ++end;
      const std::string name = text.substr(begin, end - begin);
      std::string otherwise;
      size_t last = end;
      if (braces) {
        last = text.find('}', end);
        if (last == std::string::npos) return out + text.substr(i);
        if (text.compare(end, 2, ":-") == 0) otherwise = text.substr(end + 2, last - end - 2);
        ++last;
      }
      const auto found = variables_.find(name);
      if (found != variables_.end()) {
        out += found->second;
      } else {
        out += otherwise.empty() ? text.substr(i, last - i) : otherwise;
      }
      i = last - 1;
    }
    return out;
  }

  SaidKeys flags_;
  std::map<std::string, std::string> variables_;
  bool goes_on_ = false, in_list_ = false;
  bool skips_ = false;         // whether the words are another program's
  bool takes_values_ = false;  // whether the next word is a value of the last flag
  bool has_value_ = false;     // whether the last flag has one already
};

}  // namespace

SaidKeys flags_of_script(const std::string& text) { return Script().read(text); }

}  // namespace tessera
