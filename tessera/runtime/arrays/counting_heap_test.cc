// Counts what the whole test program takes from the heap, libtorch included: `operator new`, and
// the function by which libtorch takes memory for tensors, are replaced. This is a file of its own,
// so that the compiler does not see both sides of a pair.
#include <malloc.h>

#include <cerrno>
#include <cstdlib>
#include <new>

#include "tessera/runtime/testing.h"

namespace tessera::testing {
thread_local int64_t allocations = 0;
}  // namespace tessera::testing

namespace {

void* counted(std::size_t bytes, std::size_t alignment) {
  ++tessera::testing::allocations;
  void* memory = alignment == 0 ? std::malloc(bytes) : memalign(alignment, bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
extern "C" int posix_memalign(void** to, std::size_t alignment, std::size_t bytes) noexcept {
  ++tessera::testing::allocations;
  *to = memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
