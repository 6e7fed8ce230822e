#include "tessera/import/dcp/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "tessera/base/one_line.h"

namespace tessera::dcp {

using Kind = PickleValue::Kind;

// Runs the program of a pickle: each step takes one opcode and what belongs to it from the bytes,
// and changes the stack. `error_` is set by the step that fails, and ends the run.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::set<std::string>& known, std::string where)
      : bytes_(bytes), known_(known), where_(std::move(where)) {}

  Result<Pickle> run() {
    if (bytes_.size() < 2 || bytes_[0] != '\x80' || bytes_[1] < 2 || bytes_[1] > 5)
      return error("a pickle of protocol 2 to 5", "other bytes");
    for (at_ = 2; !stopped_ && error_.empty();) step();
    if (!error_.empty()) return invalid_input(error_);
    if (stack_.size() != 1) return error("one value at the end", std::to_string(stack_.size()));
    pickle_.root_ = stack_.back();
    return std::move(pickle_);
  }

 private:
  tl::unexpected<Error> error(std::string_view expected, std::string_view found) const {
    return invalid_input(fmt::format("{}: byte {} of the pickle: expected {}, found {}", where_,
                                     at_, expected, short_line(found)));
  }
  void fail(std::string_view expected, std::string_view found) {
    if (error_.empty()) error_ = error(expected, found).value().message;
  }

  // ---- bytes
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      fail(fmt::format("{} more bytes", count), "the end");
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  // Takes a little-endian number of `width` bytes.
  uint64_t number(size_t width) {
    uint64_t value = 0;
    const std::string_view taken = take(width);
    for (size_t i = taken.size(); i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(taken[i]);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) {
      fail("the end of a line", "none");
      return {};
    }
    const std::string_view taken = take(end - at_);
    ++at_;
    return taken;
  }

  // ---- values
  std::vector<PickleValue>& values() { return pickle_.values_; }
  void push(PickleValue value) {
    if (values().size() >= kMostPickleValues) {
      fail(fmt::format("at most {} values", kMostPickleValues), "more");
      return;
    }
    values().push_back(std::move(value));
    stack_.push_back(static_cast<uint32_t>(values().size() - 1));
  }
  void push_number(Kind kind, int64_t value) {
    PickleValue made;
    made.kind = kind;
    made.integer = value;
    push(std::move(made));
  }
  void push_text(Kind kind, std::string_view text) {
    PickleValue made;
    made.kind = kind;
    made.text = text;
    push(std::move(made));
  }
  void push_items(Kind kind, std::vector<uint32_t> items, std::string text = "") {
    PickleValue made;
    made.kind = kind;
    made.items = std::move(items);
    made.text = std::move(text);
    push(std::move(made));
  }
  bool need(size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (error_.empty() && stack_.size() >= floor + count) return true;
    fail(fmt::format("{} values on the stack", count), "fewer");
    return false;
  }
  uint32_t pop() {
    const uint32_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<uint32_t> pop_some(size_t count) {
    std::vector<uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  // Takes what follows the last mark off the stack; nothing: there is no mark.
  std::optional<std::vector<uint32_t>> pop_marked() {
    if (marks_.empty() || stack_.size() < marks_.back()) {
      fail("a mark on the stack", "none");
      return std::nullopt;
    }
    const size_t begin = marks_.back();
    marks_.pop_back();
    return pop_some(stack_.size() - begin);
  }
  // Appends to the value on top of the stack, which must be of the kind.
  void extend(Kind kind, const std::vector<uint32_t>& items) {
    if (!need(1)) return;
    PickleValue& target = values()[stack_.back()];
    if (target.kind != kind || (kind == Kind::kDict && items.size() % 2 != 0))
      return fail(kind == Kind::kDict ? "a dict, and keys with values" : "a list", "another value");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }
  void put(uint64_t slot) {
    if (need(1)) memo_[slot] = stack_.back();
  }
  void get(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) return fail("a value that was kept", fmt::format("slot {}", slot));
    stack_.push_back(found->second);
  }

  // ---- classes
  void push_class(std::string_view module, std::string_view name) {
    const std::string full = fmt::format("{} {}", module, name);
    if (!known_.contains(full)) {
      std::string shown = fmt::format("{}.{}", module, name);
      return fail("only classes of a checkpoint", shown);
    }
    push_text(Kind::kClass, full);
  }
  // Keeps that a class is called with arguments. A torch.Size is its tuple, an OrderedDict a dict.
  void call() {
    if (!need(2)) return;
    const uint32_t arguments = pop(), callee = pop();
    if (values()[callee].kind != Kind::kClass || values()[arguments].kind != Kind::kTuple)
      return fail("a class and a tuple of arguments", "other values");
    const std::string name = values()[callee].text;
    if (name == "torch Size" && values()[arguments].items.size() == 1) {
      stack_.push_back(values()[arguments].items[0]);
    } else if (name == "collections OrderedDict" && values()[arguments].items.empty()) {
      push_items(Kind::kDict, {});
    } else {
      push_items(Kind::kObject, values()[arguments].items, name);
    }
  }
  void build() {
    if (!need(2)) return;
    const uint32_t state = pop();
    if (values()[stack_.back()].kind != Kind::kObject) return fail("an object", "another value");
    values()[stack_.back()].state = state;
  }

  void step() {
    const auto opcode = static_cast<unsigned char>(number(1));
    if (!error_.empty()) return;
    switch (opcode) {
      case '.': stopped_ = true; break;
      case 0x95: number(8); break;  // FRAME: its length, which says nothing that is needed
      case '(': marks_.push_back(stack_.size()); break;
      case '0': need(1) ? static_cast<void>(pop()) : static_cast<void>(0); break;
      case '1': pop_marked(); break;
      case 'N': push({}); break;
      case 0x88: push_number(Kind::kBool, 1); break;
      case 0x89: push_number(Kind::kBool, 0); break;
      case 'J': push_number(Kind::kInt, static_cast<int32_t>(number(4))); break;
      case 'K': push_number(Kind::kInt, static_cast<int64_t>(number(1))); break;
      case 'M': push_number(Kind::kInt, static_cast<int64_t>(number(2))); break;
      case 0x8a: push_long(); break;
      case 'G': push_float(); break;
      case 'X': push_text(Kind::kText, take(number(4))); break;
      case 0x8c: push_text(Kind::kText, take(number(1))); break;
      case 0x8d: push_text(Kind::kText, take(number(8))); break;
      case 'B': push_text(Kind::kBytes, take(number(4))); break;
      case 'C': push_text(Kind::kBytes, take(number(1))); break;
      case 0x8e: push_text(Kind::kBytes, take(number(8))); break;
      default: step_of_containers(opcode);
    }
  }
  void step_of_containers(unsigned char opcode) {
    switch (opcode) {
      case ')': push_items(Kind::kTuple, {}); break;
      case ']': push_items(Kind::kList, {}); break;
      case '}': push_items(Kind::kDict, {}); break;
      case 0x8f: push_items(Kind::kList, {}); break;  // a set
      case 0x85:
      case 0x86:
      case 0x87:
        if (need(opcode - 0x84U)) push_items(Kind::kTuple, pop_some(opcode - 0x84U));
        break;
      case 't':
        if (auto items = pop_marked()) push_items(Kind::kTuple, std::move(*items));
        break;
      case 'a':
        if (need(2)) extend(Kind::kList, {pop()});
        break;
      case 'e':
      case 0x90:
        if (auto items = pop_marked()) extend(Kind::kList, *items);
        break;
      case 's':
        if (need(3)) extend(Kind::kDict, pop_some(2));
        break;
      case 'u':
        if (auto items = pop_marked()) extend(Kind::kDict, *items);
        break;
      default: step_of_classes(opcode);
    }
  }
  void step_of_classes(unsigned char opcode) {
    switch (opcode) {
      case 'h': get(number(1)); break;
      case 'j': get(number(4)); break;
      case 'q': put(number(1)); break;
      case 'r': put(number(4)); break;
      case 0x94: put(memo_.size()); break;
      case 'c': {
        const std::string_view module = line(), name = line();
        if (error_.empty()) push_class(module, name);
        break;
      }
      case 0x93: {
        if (!need(2)) break;
        const uint32_t name = pop(), module = pop();
        push_class(values()[module].text, values()[name].text);
        break;
      }
      case 'R':
      case 0x81: call(); break;
      case 'b': build(); break;
      case 'Q':
        if (need(1)) push_items(Kind::kPersistent, {pop()});
        break;
      default: fail("an opcode of a checkpoint's pickle", fmt::format("0x{:02x}", opcode));
    }
  }
  void push_long() {
    const uint64_t width = number(1);
    if (width > 8) return fail("an integer of at most 8 bytes", fmt::format("{}", width));
    uint64_t value = number(width);
    if (width > 0 && width < 8 && (value >> (8 * width - 1)) != 0)
      value |= ~uint64_t{0} << (8 * width);
    push_number(Kind::kInt, static_cast<int64_t>(value));
  }
  void push_float() {
    const std::string_view taken = take(8);
    uint64_t bits = 0;
    for (const char byte : taken) bits = bits << 8 | static_cast<unsigned char>(byte);
    PickleValue made;
    made.kind = Kind::kFloat;
    made.number = std::bit_cast<double>(bits);
    push(std::move(made));
  }

  std::string_view bytes_;
  const std::set<std::string>& known_;
  std::string where_, error_;
  size_t at_ = 0;
  bool stopped_ = false;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, uint32_t> memo_;
};

Result<Pickle> Pickle::parse(std::string_view bytes, const std::set<std::string>& known,
                             const std::string& where) {
  return PickleMachine(bytes, known, where).run();
}

const PickleValue* Pickle::item(const PickleValue& value, size_t index) const {
  return index < value.items.size() ? &values_[value.items[index]] : nullptr;
}

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& one = values_[dict.items[i]];
    if (one.kind == Kind::kText && one.text == key) return &values_[dict.items[i + 1]];
  }
  return nullptr;
}

const PickleValue* Pickle::attribute(const PickleValue& object, std::string_view name) const {
  if (object.kind != Kind::kObject || !object.state) return nullptr;
  return find(values_[*object.state], name);
}

std::optional<std::vector<int64_t>> Pickle::integers(const PickleValue& value) const {
  constexpr size_t kMost = 64;
  if ((value.kind != Kind::kTuple && value.kind != Kind::kList) || value.items.size() > kMost)
    return std::nullopt;
  std::vector<int64_t> out;
  for (const uint32_t index : value.items) {
    if (values_[index].kind != Kind::kInt) return std::nullopt;
    out.push_back(values_[index].integer);
  }
  return out;
}

namespace {

template <class Number>
void append_bytes(std::string& out, Number value, size_t width) {
  for (size_t i = 0; i < width; ++i)
    out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
}

}  // namespace

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    append_bytes(bytes_, value, 1);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += 'J';
    append_bytes(bytes_, value, 4);
  } else {
    bytes_ += "\x8a\x08";
    append_bytes(bytes_, value, 8);
  }
}

void PickleWriter::number(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  bytes_ += 'G';
  for (int i = 7; i >= 0; --i) bytes_ += static_cast<char>(bits >> (8 * i) & 0xff);
}

void PickleWriter::text(std::string_view value) {
  bytes_ += 'X';
  append_bytes(bytes_, value.size(), 4);
  bytes_ += value;
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  bytes_ += fmt::format("c{}\n{}\n", module, name);
}

void PickleWriter::integers(const std::vector<int64_t>& values) {
  mark();
  for (const int64_t value : values) integer(value);
  tuple();
}

void PickleWriter::size(const std::vector<int64_t>& values) {
  global("torch", "Size");
  mark();
  integers(values);
  tuple();
  call();
}

}  // namespace tessera::dcp
