// Counts the bytes that this program holds: `operator new` is replaced. This is a file of its own,
// so that the compiler does not see both sides of a pair.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "fuzz.h"

namespace {

std::atomic<int64_t> held = 0, at_reset = 0, peak = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  void* memory = alignment == 0 ? std::malloc(bytes) : memalign(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const auto size = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = held.fetch_add(size) + size;
  int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) continue;
  return memory;
}

void release(void* memory) {
  held -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

namespace tessera {
void reset_peak() {
  at_reset = held.load();
  peak = held.load();
}
int64_t peak_bytes() { return peak - at_reset; }
}  // namespace tessera

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
