// Questions about any instruction of a program (program.h) or of a place text (place_text.h),
// whatever its kind.
//
// match(instruction, cases...) calls the case whose parameter is the instruction's kind. There must
// be a case for every kind, and no case may take all kinds. So if a kind is added to Instruction or
// to TextInstruction, the project does not compile until each match has a case for the new kind.
//
//   const std::string name = match(
//       instruction, [](const Compute& compute) { return compute.kind; },
//       [](const Wait&) { return std::string("wait"); },
//       [](const OneOf<Issue, Send, Recv, Copy, Load, Free> auto&) { return std::string(); });
//
// The functions below are such matches. accesses() says which views an instruction touches, and
// how; handle_of() which handle it starts; message_of() which end of a message it is. Code that
// calls these functions need not list kinds. Code that looks for one kind alone, such as the wait
// for a handle, may use std::get_if.
#pragma once

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "tessera/program/program.h"

namespace tessera {

template <class T, class... Kinds>
concept OneOf = (std::same_as<T, Kinds> || ...);

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// `KindToCome` stands for a kind of instruction that will be added one day. A case that takes it
// takes everything, which match() does not allow.
struct KindToCome {};

// True if `Cases` takes every alternative of the variant, and nothing else.
template <class Cases, class Body>
inline constexpr bool kExhaustive = false;
template <class Cases, class... Kinds>
inline constexpr bool kExhaustive<Cases, std::variant<Kinds...>> =
    (std::is_invocable_v<Cases&, Kinds&> && ...) && !std::is_invocable_v<Cases&, KindToCome&>;

template <class AnyInstruction, class... F>
decltype(auto) match(AnyInstruction& instruction, F&&... cases) {
  Overloaded all{std::forward<F>(cases)...};
  static_assert(kExhaustive<decltype(all), std::remove_cvref_t<decltype(instruction.body)>>,
                "expected a case for each kind of instruction and none for all of them");
  return std::visit(all, instruction.body);
}

enum class AccessMode : uint8_t {
  kRead,
  kSet,
  kAdd,             // adds to the present value
  kAddExceptFirst,  // sets in the block's first run of the step, then adds
  kUpdate,          // reads the value and writes a new one: the residual of error feedback
  kFree,            // frees the whole buffer, or the whole slot of a micro-batch
};
constexpr bool reads(AccessMode mode) {
  return mode == AccessMode::kRead || mode == AccessMode::kAdd ||
         mode == AccessMode::kAddExceptFirst || mode == AccessMode::kUpdate;
}
constexpr bool writes(AccessMode mode) {
  return mode == AccessMode::kSet || mode == AccessMode::kAdd ||
         mode == AccessMode::kAddExceptFirst || mode == AccessMode::kUpdate;
}
constexpr AccessMode access_mode(Write write) {
  switch (write) {
    case Write::kSet: return AccessMode::kSet;
    case Write::kAdd: return AccessMode::kAdd;
    case Write::kAddExceptFirst: break;
  }
  return AccessMode::kAddExceptFirst;
}

struct Access {
  BufferId buffer;
  const View* view = nullptr;  // null: all of the buffer (Free)
  AccessMode mode = AccessMode::kRead;
};

// Calls visit(Access) for everything that the instruction touches, in the order of the text form.
// An instruction with a handle touches its views until the handle's wait.
template <class Visit>
void accesses(const Instruction& instruction, const Visit& visit) {
  const auto touch = [&](const View& view, AccessMode mode) {
    visit(Access{view.buffer, &view, mode});
  };
  const auto maybe = [&](const std::optional<View>& view, AccessMode mode) {
    if (view) touch(*view, mode);
  };
  match(
      instruction,
      [&](const Compute& compute) {
        for (const View& view : compute.inputs) touch(view, AccessMode::kRead);
        for (const Output& output : compute.outputs) touch(output.view, access_mode(output.write));
      },
      [&](const Issue& issue) {
        maybe(issue.residual, AccessMode::kUpdate);
        for (const Transfer& transfer : issue.transfers) {
          maybe(transfer.in, AccessMode::kRead);
          maybe(transfer.out, AccessMode::kSet);
        }
        if (issue.named) {
          for (const View& ids : issue.named->ids) touch(ids, AccessMode::kRead);
        }
      },
      [&](const Send& send) {
        touch(send.view, AccessMode::kRead);
        maybe(send.residual, AccessMode::kUpdate);
      },
      [&](const Recv& recv) { touch(recv.view, AccessMode::kSet); }, [](const Wait&) {},
      [&](const Copy& copy) {
        touch(copy.from, AccessMode::kRead);
        touch(copy.to, access_mode(copy.write));
      },
      [&](const Load& load) { touch(load.to, AccessMode::kSet); },
      [&](const FetchRows& fetch) {
        for (const RowIds& ids : fetch.ids) maybe(ids.view, AccessMode::kRead);
      },
      [](const ReleaseRows&) {},
      [&](const Free& free) {
        visit(Access{free.buffer, nullptr, AccessMode::kFree});
      });
}

// Returns the instruction's handle, if it may still run while later instructions do; -1 if it is
// done when the next instruction begins.
inline int handle_of(const Instruction& instruction) {
  return match(
      instruction,
      [](const OneOf<Issue, Send, Recv, Copy, FetchRows> auto& body) { return body.handle; },
      [](const OneOf<Compute, Wait, Load, Free, ReleaseRows> auto&) { return -1; });
}

// A `MessageEnd` is one end of a message between two ranks: a send or a receive. message_of returns
// the end that the instruction is, or nothing if it is neither.
struct MessageEnd {
  bool sends = false;
  int handle = 0;
  int peer = 0;
  int64_t tag = 0;
  TensorId tensor;
  const Box* region = nullptr;
  const View* view = nullptr;
  const std::optional<Codec>* codec = nullptr;
};
inline std::optional<MessageEnd> message_of(const Instruction& instruction) {
  const auto end = [](bool sends, const auto& body) {
    return MessageEnd{sends,       body.handle,  body.peer,  body.tag,
                      body.tensor, &body.region, &body.view, &body.codec};
  };
  return match(
      instruction, [&](const Send& send) -> std::optional<MessageEnd> { return end(true, send); },
      [&](const Recv& recv) -> std::optional<MessageEnd> { return end(false, recv); },
      [](const OneOf<Compute, Issue, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&)
          -> std::optional<MessageEnd> { return std::nullopt; });
}

}  // namespace tessera
