// The rest of the heap of the extension module, beside tessera/heap/options.cc: the operators that
// free, and those that return null. In a program the shared library of mimalloc has them. A process
// with other modules may find the operators of another library first, which would free what
// mimalloc allocated; so this module has all of its own, and shows none.
#include <mimalloc.h>

#include <cstddef>
#include <new>

void operator delete(void* memory) noexcept { mi_free(memory); }
void operator delete[](void* memory) noexcept { mi_free(memory); }
void operator delete(void* memory, std::size_t) noexcept { mi_free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { mi_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { mi_free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { mi_free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { mi_free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { mi_free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { mi_free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { mi_free(memory); }

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return mi_malloc(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return mi_malloc(bytes); }
