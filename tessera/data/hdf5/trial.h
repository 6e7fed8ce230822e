// Calls of a library that may not come back from a file: it may end by a signal, or never. A process
// of its own tries them first.
//
//   if (comes_back([&] { touch(name); }, std::chrono::seconds(60))) ...
#pragma once

#include <chrono>
#include <functional>

namespace tessera {

// Returns true if `act` returns in a child process within the limit; false if the child ends by a
// signal, by an exit of its own, or is stopped at the limit. Nothing that `act` changes in memory is
// seen here. True without a trial where no process can be had.
bool comes_back(const std::function<void()>& act, std::chrono::milliseconds limit);

}  // namespace tessera
