// Tries out a call of a library that may crash or hang on a file, in a process of its own. If the
// trial succeeds, this process can make the call.
//
//   if (comes_back([&] { touch(name); }, std::chrono::seconds(60))) ...
#pragma once

#include <chrono>
#include <functional>

namespace tessera {

// Returns true if `act` returns within the limit when it runs in a child process. Returns false if
// the child is ended by a signal, exits in another way, or has to be stopped at the limit. Changes
// that `act` makes in memory stay in the child. If no process can be started, returns true without
// a trial.
bool comes_back(const std::function<void()>& act, std::chrono::milliseconds limit);

}  // namespace tessera
