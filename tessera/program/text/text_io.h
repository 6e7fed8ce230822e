// The language of programs and of place texts, written once for both directions. A *form* names the
// parts of an object in the order in which they stand in its text. With a `Writer` a form prints the
// object; with a `Reader` the same form reads the object back. So the two directions cannot differ.
//
//   template <class Io>
//   void wait_form(Io& io, auto& wait) {        // "wait #5 lag 1"
//     io.text("wait #");
//     io.number(wait.handle);
//     if (io.option(" lag ", wait.lag != 0)) io.number(wait.lag);
//   }
//
// The spaces of a text matter only to the Writer. A Reader keeps the first error and goes on; what
// it reads then has no meaning. Private to tessera/program.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tessera/base/codec.h"
#include "tessera/base/shared.h"
#include "tessera/program/text/text_parts.h"

namespace tessera::program_text {

// Calls token(one) for the words and symbols of the text, which spaces separate.
template <class Token>
void for_each_token(std::string_view text, const Token& token) {
  while (!text.empty()) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    text.remove_prefix(begin);
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) token(text.substr(0, end));
    text.remove_prefix(end);
  }
}

class Writer {
 public:
  static constexpr bool kReads = false;
  explicit Writer(const Graph& graph) : graph_(graph) {}
  std::string take() { return std::move(out_); }

  void text(std::string_view text) { out_ += text; }
  // Writes the text if `present`. Returns whether what follows the text is present.
  bool option(std::string_view text, bool present) {
    if (present) out_ += text;
    return present;
  }
  // Returns whether what begins with the token is present. Writes nothing.
  bool next(std::string_view /*token*/, bool present) { return present; }
  // Returns whether there is more on the line.
  bool more(bool present) { return present; }
  // Only a Reader sets a member, to a value that follows from the words before.
  template <class T>
  void set(const T& /*member*/, const T& /*value*/) {}

  template <class T>
  void number(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      fmt::format_to(std::back_inserter(out_), "{}", value);
    } else {
      fmt::format_to(std::back_inserter(out_), "{}", value.value);  // an id
    }
  }
  void interval(const Interval& value) {
    fmt::format_to(std::back_inserter(out_), "{}:{}", value.begin, value.end());
  }
  void quoted(std::string_view text) { out_ += program_text::quoted(text); }
  void word(std::string_view text) { out_ += text; }
  // Writes " {name = value, ...}"; nothing if there are no attributes.
  void attributes(const Attributes& attributes) {
    if (attributes.empty()) return;
    list(" {", ", ", "}", attributes, [&](const auto& attribute) {
      out_ += attribute.first + " = " + attribute_text(attribute.second);
    });
  }
  void box(const Box& box) { out_ += box.to_string(); }
  void tensor(TensorId id) { out_ += tensor_text(graph_, id); }
  void op(OpId id) { out_ += op_text(graph_, id); }
  void label(std::string_view name) {  // a name that says nothing a Reader needs
    out_ += name;
    out_ += ": ";
  }
  void block(BlockRef ref) { out_ += block_name(ref); }
  void dtype(DType dtype) { out_ += dtype_name(dtype); }
  void combiner(Combiner combiner) { out_ += combiner_name(combiner); }
  void codec(const Codec& codec) { quoted(codec_text(codec)); }
  template <class Enum, class Name>
  void named(Enum value, size_t /*count*/, const Name& name, std::string_view /*what*/) {
    out_ += name(value);
  }
  // Returns the value of an option that is present.
  template <class T>
  const T& value(const std::optional<T>& option) {
    return *option;
  }
  template <class T, class Form>
  void shared(const Shared<T>& value, const Form& form) {
    form(*value);
  }
  template <class T, class Form>
  void shared(const std::shared_ptr<const T>& value, const Form& form) {
    form(*value);
  }

  // Writes the elements, each by form(element), between `open` and `close`.
  template <class List, class Form>
  void list(std::string_view open, std::string_view between, std::string_view close,
            const List& list, const Form& form) {
    out_ += open;
    sequence(between, list, form);
    out_ += close;
  }
  // Writes the elements, of which there is at least one.
  template <class List, class Form>
  void sequence(std::string_view between, const List& list, const Form& form) {
    bool first = true;
    for (const auto& element : list) {
      if (!std::exchange(first, false)) out_ += between;
      form(element);
    }
  }
  // Writes the elements, with `before` in front of each.
  template <class List, class Form>
  void repeated(std::string_view before, const List& list, const Form& form) {
    for (const auto& element : list) {
      out_ += before;
      form(element);
    }
  }
  // Writes the body by form(body) if the variant has a T for which is(body) holds. Returns whether it
  // has.
  template <class T, class Variant, class Form>
  bool alternative(std::string_view begin, const Variant& variant, const Form& form) {
    return alternative<T>([](const T&) { return true; }, begin, variant, form);
  }
  template <class T, class Is, class Variant, class Form>
  bool alternative(const Is& is, std::string_view begin, const Variant& variant, const Form& form) {
    const T* body = std::get_if<T>(&variant);
    if (body == nullptr || !is(*body)) return false;
    out_ += begin;
    form(*body);
    return true;
  }
  void unknown(std::string_view /*what*/) {}

  // ---- lines
  template <class Form>
  void first_line(std::string_view begin, std::string_view /*usage*/, const Form& form) {
    line(begin, form);
  }
  template <class Form>
  void line(std::string_view begin, const Form& form) {
    out_ += begin;
    form();
    out_ += '\n';
  }
  // Writes a line for each element: form(index, element).
  template <class List, class Form>
  void lines(std::string_view begin, const List& list, const Form& form) {
    for (size_t i = 0; i < list.size(); ++i) line(begin, [&] { form(i, list[i]); });
  }
  // Writes a line for each entry of a map: form(key, value).
  template <class Map, class Form>
  void entries(std::string_view begin, const Map& map, const Form& form) {
    for (const auto& [key, value] : map)
      line(begin, [&, &key = key, &value = value] { form(key, value); });
  }
  // Writes the blocks that are not empty: form(instruction) for each instruction.
  template <class Instructions, class Form>
  void blocks(const ByBlock<Instructions>& blocks, const Form& form) {
    for (const auto& [ref, block] : blocks) {
      if (block.empty()) continue;
      out_ += block_name(ref) + " {\n";
      for (const auto& instruction : block) line("  ", [&] { form(instruction); });
      out_ += "}\n";
    }
  }

 private:
  const Graph& graph_;
  std::string out_;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(const Graph& graph) : names_(graph) {}

  // Reads a text: calls read_line() for each line that is neither empty nor a comment. read_line()
  // offers all kinds of lines, as first_line(), line() and so on; the one whose beginning the line
  // has reads it. `usage` says what the first line looks like.
  template <class ReadLine>
  Status read(std::string_view text, std::string_view file, std::string_view usage,
              const ReadLine& read_line) {
    TESSERA_TRY_VOID(read_lines(text, file, [&](Cursor& in) {
      in_ = &in;
      done_ = false;
      read_line();
    }));
    if (!started_) return invalid_input(fmt::format("{}:1: expected '{}'", file, usage));
    if (open_) {
      const auto ends = std::count(text.begin(), text.end(), '\n') + (text.ends_with('\n') ? 0 : 1);
      return invalid_input(fmt::format("{}:{}: expected '}}' before the end", file, ends));
    }
    return {};
  }
  bool failed() const { return in_->failed(); }
  void fail(std::string message) { in_->fail(std::move(message)); }
  std::string rest() { return in_->rest(); }

  void text(std::string_view text) {
    for_each_token(text, [&](std::string_view token) { in_->expect(token); });
  }
  bool option(std::string_view text, bool /*present*/) {
    bool first = true, present = true;
    for_each_token(text, [&](std::string_view token) {
      if (std::exchange(first, false)) {
        present = !failed() && in_->accept(token);
      } else if (present) {
        in_->expect(token);
      }
    });
    return present;
  }
  bool next(std::string_view token, bool /*present*/) {
    Cursor ahead = *in_;
    return !failed() && ahead.accept(token);
  }
  bool more(bool /*present*/) { return !in_->at_end(); }
  template <class T>
  void set(T& member, const T& value) {
    member = value;
  }

  template <class T>
  void number(T& value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      value = in_->integer();
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = static_cast<T>(in_->small());
    } else {
      value = T(in_->small());  // an id
    }
  }
  void interval(Interval& value) {
    value.begin = in_->integer();
    in_->expect(":");
    value.size = in_->integer() - value.begin;
  }
  void quoted(std::string& text) { text = in_->quoted(); }
  void word(std::string& text) { text = in_->word(); }
  void attributes(Attributes& attributes) {
    if (!option("{", false)) return;
    do {
      const std::string name = in_->word();
      in_->expect("=");
      attributes[name] = in_->attribute();
    } while (option(",", false));
    in_->expect("}");
  }
  void box(Box& box) { box = in_->box(); }
  void tensor(TensorId& id) { id = names_.tensor(*in_); }
  void op(OpId& id) { id = names_.op(*in_); }
  void label(std::string_view /*name*/) {
    in_->until(':');
    in_->expect(":");
  }
  void block(BlockRef& ref) {
    ref.kind = in_->named<BlockKind>(
        kBlockKinds, [](BlockKind kind) { return block_name(kind); }, "block");
    if (in_->accept("@")) ref.chunk = in_->small();
  }
  void dtype(DType& dtype) { parsed(parse_dtype(in_->word()), dtype); }
  void combiner(Combiner& combiner) { parsed(parse_combiner(in_->word()), combiner); }
  void codec(Codec& codec) { parsed(parse_codec(in_->quoted()), codec); }
  template <class Enum, class Name>
  void named(Enum& value, size_t count, const Name& name, std::string_view what) {
    value = in_->named<Enum>(count, name, what);
  }
  template <class T>
  T& value(std::optional<T>& option) {
    return option.emplace();
  }
  template <class T, class Form>
  void shared(Shared<T>& value, const Form& form) {
    T read;
    form(read);
    value = std::move(read);
  }
  template <class T, class Form>
  void shared(std::shared_ptr<const T>& value, const Form& form) {
    T read;
    form(read);
    value = std::make_shared<const T>(std::move(read));
  }

  template <class List, class Form>
  void list(std::string_view open, std::string_view between, std::string_view close, List& list,
            const Form& form) {
    text(open);
    for (bool first = true; !failed() && !option(close, false);) {
      if (!std::exchange(first, false)) text(between);
      add(list, form);
    }
  }
  template <class List, class Form>
  void sequence(std::string_view between, List& list, const Form& form) {
    do {
      add(list, form);
    } while (option(between, false));
  }
  template <class List, class Form>
  void repeated(std::string_view before, List& list, const Form& form) {
    while (option(before, false)) add(list, form);
  }
  template <class T, class Is, class Variant, class Form>
  bool alternative(const Is& /*is*/, std::string_view begin, Variant& variant, const Form& form) {
    return alternative<T>(begin, variant, form);
  }
  template <class T, class Variant, class Form>
  bool alternative(std::string_view begin, Variant& variant, const Form& form) {
    if (!option(begin, false)) return false;
    T body;
    form(body);
    variant = std::move(body);
    return true;
  }
  void unknown(std::string_view what) { fail(fmt::format("unknown {} {}", what, in_->rest())); }

  // ---- lines
  template <class Form>
  void first_line(std::string_view begin, std::string_view usage, const Form& form) {
    if (!started_ && !next(begin.substr(0, begin.find(' ')), false))
      fail(fmt::format("expected '{}', found {}", usage, in_->rest()));
    started_ = true;
    line(begin, form);
  }
  template <class Form>
  void line(std::string_view begin, const Form& form) {
    if (is_other_line(begin)) return;
    form();
  }
  template <class List, class Form>
  void lines(std::string_view begin, List& list, const Form& form) {
    if (is_other_line(begin)) return;
    const size_t index = list.size();
    add(list, [&](auto& element) { form(index, element); });
  }
  template <class Map, class Form>
  void entries(std::string_view begin, Map& map, const Form& form) {
    if (is_other_line(begin)) return;
    typename Map::key_type key;
    typename Map::mapped_type value;
    form(key, value);
    map[key] = std::move(value);
  }
  template <class Instructions, class Form>
  void blocks(ByBlock<Instructions>& blocks, const Form& form) {
    if (done_ || failed()) return;
    if (!open_) {
      BlockRef ref;
      block(ref);
      in_->expect("{");
      if (!blocks[ref].empty()) fail("this block is there twice");
      open_ = ref;
    } else if (in_->accept("}")) {
      open_.reset();
    } else {
      add(blocks[*open_], form);
    }
  }

 private:
  // Returns whether the line is of another kind than the one that begins like this.
  bool is_other_line(std::string_view begin) {
    if (done_ || open_ || !option(begin, false)) return true;
    done_ = true;
    return false;
  }
  template <class List, class Form>
  static void add(List& list, const Form& form) {
    std::remove_cvref_t<decltype(*list.begin())> element{};
    form(element);
    list.push_back(std::move(element));
  }
  template <class T>
  void parsed(Result<T> found, T& value) {
    if (found) value = std::move(*found);
    if (!found) fail(found.error().message);
  }

  const GraphNames names_;
  Cursor* in_ = nullptr;
  bool started_ = false;            // the first line was read
  bool done_ = false;               // the line was read
  std::optional<BlockRef> open_{};  // the block in which the line stands
};

// ---- forms that programs and place texts share

// Handles texts and numbers in their order; what is no text is a number or an id.
template <class Io, class... Parts>
void put_parts(Io& io, Parts&&... parts) {
  const auto put = [&io](auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
      io.text(part);
    } else {
      io.number(part);
    }
  };
  (put(parts), ...);
}

// Handles the number of a line of its kind, as "%3": the lines are numbered from 0.
template <class Io>
void index_form(Io& io, size_t index, std::string_view kind, std::string_view before) {
  size_t number = index;
  put_parts(io, before, number);
  if constexpr (Io::kReads) {
    if (number != index) io.fail(fmt::format("expected {}{}{}", kind, before, index));
  }
}

template <class Io>
void write_form(Io& io, auto& write) {
  io.named(write, 3, write_name, "write");
}

// Writes of copies, of which the usual one is not named.
template <class Io>
void copy_write_form(Io& io, auto& write) {
  if (io.option("add ", write == Write::kAdd)) {
    io.set(write, Write::kAdd);
  } else if (io.option("add_except_first ", write == Write::kAddExceptFirst)) {
    io.set(write, Write::kAddExceptFirst);
  }
}

// An output of a compute: `view()` is the form of its view.
template <class Io, class View>
void output_form(Io& io, auto& output, const View& view) {
  write_form(io, output.write);
  io.text(" ");
  io.tensor(output.tensor);
  io.text(" ");
  view(output.view);
  if (io.option(" term ", output.term != 0 || output.terms != 1))
    put_parts(io, output.term, " of ", output.terms);
}

template <class Io>
void wait_form(Io& io, auto& wait) {
  io.number(wait.handle);
  if (io.option(" lag ", wait.lag != 0)) io.number(wait.lag);
}

// A copy: `what()` is the form of the tensor or region, `view()` that of a view.
template <class Io, class What, class View>
void copy_form(Io& io, auto& copy, const What& what, const View& view) {
  if (io.option("#", copy.handle >= 0)) put_parts(io, copy.handle, " ");
  what();
  io.text(" ");
  view(copy.from);
  io.text(" -> ");
  copy_write_form(io, copy.write);
  view(copy.to);
}

// A line of a block: in which runs it is executed, its body by body(), and the op that it serves,
// which is not written if it is the op of a ComputeT.
template <class ComputeT, class Io, class Body>
void instruction_form(Io& io, auto& instruction, const Body& body) {
  if (io.option("first ", instruction.when == When::kFirst)) io.set(instruction.when, When::kFirst);
  if (io.option("last ", instruction.when == When::kLast)) io.set(instruction.when, When::kLast);
  body();
  const auto* compute = std::get_if<ComputeT>(&instruction.body);
  const OpId own = compute != nullptr ? compute->op : OpId();
  if (io.option(" for ", instruction.cause != own)) {
    io.op(instruction.cause);
  } else {
    io.set(instruction.cause, own);
  }
}

}  // namespace tessera::program_text
