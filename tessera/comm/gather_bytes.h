// Gathers values that ranks exchange outside of programs: texts, checksums, boxes, counts, events.
// The values travel as bytes of any length, so every value arrives unchanged, including integers
// beyond 2^53.
//
//   for (const std::string& text : comm::gather_bytes(world, why)) ...      // by rank
//   for (const int64_t bytes : comm::gather_values(world, my_bytes)) ...    // one value a rank
//   const auto lists = comm::gather_lists_at(world, /*to=*/0, my_events);   // for rank 0 alone
//
// All ranks of the communicator call the same function. A value travels as its bytes in memory, so
// it must be a number or a struct of numbers, and all processes must run the same program.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/comm/communicator.h"

namespace tessera::comm {

// Gives the bytes of every rank to every rank, in the order of the ranks.
std::vector<std::string> gather_bytes(Communicator& world, std::string_view mine);
// Gives the bytes of every rank to rank `to`; the other ranks get an empty list.
std::vector<std::string> gather_bytes_at(Communicator& world, int to, std::string_view mine);
// Gives the bytes of every rank to every rank, in the order of the ranks, if all ranks have equally
// many bytes. This takes one collective call; gather_bytes needs two, because it first gathers the
// lengths.
std::vector<std::string> gather_equal_bytes(Communicator& world, std::string_view mine);

template <class T>
std::string_view bytes_of(const T* values, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>, "a pointer would mean nothing to another rank");
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}
template <class T>
std::vector<T> list_of(std::string_view bytes) {
  TESSERA_CHECK(bytes.size() % sizeof(T) == 0, "{} bytes of values of {}", bytes.size(), sizeof(T));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Gives the value of every rank to every rank.
template <class T>
std::vector<T> gather_values(Communicator& world, const T& mine) {
  std::vector<T> all;
  for (const std::string& bytes : gather_equal_bytes(world, bytes_of(&mine, 1)))
    all.push_back(list_of<T>(bytes).front());
  return all;
}

// Gives the values of every rank to every rank.
template <class T>
std::vector<std::vector<T>> gather_lists(Communicator& world, const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : gather_bytes(world, bytes_of(mine.data(), mine.size())))
    all.push_back(list_of<T>(bytes));
  return all;
}
// Gives the values of every rank to rank `to`; the other ranks get an empty list.
template <class T>
std::vector<std::vector<T>> gather_lists_at(Communicator& world, int to,
                                            const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : gather_bytes_at(world, to, bytes_of(mine.data(), mine.size())))
    all.push_back(list_of<T>(bytes));
  return all;
}

}  // namespace tessera::comm
