// Options of mimalloc for programs that are linked with it. Freed memory is kept for later use,
// because one plan after another takes the same memory. Pages are large. Running out of memory
// throws an exception, as in other programs.
#include <mimalloc.h>

#include <cstddef>
#include <new>

namespace {

__attribute__((constructor)) void set_options() {
  mi_option_disable(mi_option_allow_decommit);
  mi_option_set(mi_option_decommit_delay, 3'600'000);  // ms before unused memory is returned
  mi_option_enable(mi_option_large_os_pages);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// mimalloc is written in C, which cannot throw: its own `operator new` ends the process by a signal
// if there is no memory. The operators below throw instead. mimalloc's `operator delete` also frees
// their memory.
void* operator new(std::size_t bytes) { return or_throw(mi_malloc(bytes)); }
void* operator new[](std::size_t bytes) { return or_throw(mi_malloc(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_throw(mi_malloc_aligned(bytes, static_cast<std::size_t>(alignment)));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return or_throw(mi_malloc_aligned(bytes, static_cast<std::size_t>(alignment)));
}
