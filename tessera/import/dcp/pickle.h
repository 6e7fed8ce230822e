// Reads pickles without executing anything. A pickle is a program for a small stack machine; the
// reader runs it with plain values only. Where Python would import a class and call it, the reader
// keeps the name and the arguments, and only if the name is in the caller's list.
//
//   TESSERA_TRY(const Pickle pickle, Pickle::parse(bytes, {"torch Size"}, "run/.metadata"));
//   const PickleValue* size = pickle.attribute(pickle.root(), "size");
//
// Reads the binary protocols 2 to 5, as Python's pickle and torch.save write them. Values may be
// shared and may contain each other, so a caller must not visit them without a bound: it asks for
// what it expects, level by level. Memory: at most kMostPickleValues values, whatever the text says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::dcp {

inline constexpr int64_t kMostPickleBytes = 256 << 20;
inline constexpr size_t kMostPickleValues = 1 << 24;

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,        // items: key, value, key, value, ...
    kClass,       // text: "module name"
    kObject,      // text: the class or function; items: its arguments, a tuple
    kPersistent,  // items: what the writer of the file has named instead of pickling it
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;  // of kBool and kInt
  double number = 0;    // of kFloat
  std::string text;
  std::vector<uint32_t> items;
  std::optional<uint32_t> state = std::nullopt;  // of kObject: what it was built with
};

class Pickle {
 public:
  // Parses a pickle. `known` lists the classes and functions that may occur, as "module name".
  // Errors (invalid input) name `where`, the byte, what was expected and what was found.
  static Result<Pickle> parse(std::string_view bytes, const std::set<std::string>& known,
                              const std::string& where);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(uint32_t index) const { return values_[index]; }
  // Returns item number `index` of a tuple, a list or the arguments of an object; null: there is
  // none.
  const PickleValue* item(const PickleValue& value, size_t index) const;
  // Returns the value of a key of a dict; null: there is none.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
  // Returns the attribute of an object whose state is a dict; null: there is none.
  const PickleValue* attribute(const PickleValue& object, std::string_view name) const;
  // Returns the numbers of a tuple or list of at most 64 integers; nothing if it is none.
  std::optional<std::vector<int64_t>> integers(const PickleValue& value) const;

 private:
  friend class PickleMachine;
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
};

// Writes pickles of protocol 2, value by value, as the reader above and Python read them.
//
//   PickleWriter out;
//   out.begin_object("torch.distributed.checkpoint.metadata", "Metadata");
//   ...
class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02") {}
  void none() { bytes_ += 'N'; }
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void integer(int64_t value);
  void number(double value);
  void text(std::string_view value);
  void global(std::string_view module, std::string_view name);
  void mark() { bytes_ += '('; }
  void tuple() { bytes_ += 't'; }  // of what follows the last mark
  void empty_tuple() { bytes_ += ')'; }
  void empty_list() { bytes_ += ']'; }
  void append_all() { bytes_ += 'e'; }  // to the list below the last mark, what follows the mark
  void empty_dict() { bytes_ += '}'; }
  void set_all() { bytes_ += 'u'; }  // keys and values that follow the last mark
  void call() { bytes_ += 'R'; }     // of a class or function with a tuple
  void make() { bytes_ += "\x81"; }  // of an object of a class, without a call of it
  void build() { bytes_ += 'b'; }    // gives an object its state
  void persistent() { bytes_ += 'Q'; }
  // Writes a tuple of integers; size() writes it as a torch.Size.
  void integers(const std::vector<int64_t>& values);
  void size(const std::vector<int64_t>& values);
  std::string finish() { return std::move(bytes_) + '.'; }

 private:
  std::string bytes_;
};

}  // namespace tessera::dcp
