// Replaces `operator new`: the requested size lies before each block. This is a file of its own, so
// that the compiler does not see both sides of a pair.
#include "counted_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> held = 0;
constexpr std::size_t kHead = alignof(std::max_align_t);

void* counted(std::size_t bytes) {
  auto* block = static_cast<std::byte*>(std::malloc(bytes + kHead));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(block) = bytes;
  held += static_cast<int64_t>(bytes);
  return block + kHead;
}

void release(void* memory) {
  if (memory == nullptr) return;
  auto* block = static_cast<std::byte*>(memory) - kHead;
  held -= static_cast<int64_t>(*reinterpret_cast<std::size_t*>(block));
  std::free(block);
}

}  // namespace

namespace tessera {
int64_t held_bytes() { return held; }
}  // namespace tessera

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
