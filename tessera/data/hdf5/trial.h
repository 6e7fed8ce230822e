// Calls of a library that may crash or hang on a file. A process of its own tries them first.
//
//   if (comes_back([&] { touch(name); }, std::chrono::seconds(60))) ...
#pragma once

#include <chrono>
#include <functional>

namespace tessera {

// Returns true if `act` returns in a child process within the limit; false if the child ends by a
// signal, by an exit of its own, or is stopped at the limit. Changes that `act` makes in memory are
// not seen here. If no process can be started, returns true without a trial.
bool comes_back(const std::function<void()>& act, std::chrono::milliseconds limit);

}  // namespace tessera
