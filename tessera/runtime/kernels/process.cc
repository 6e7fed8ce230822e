// What concerns libtorch as a whole: threads, autograd off, memory of its temporaries.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>

#include <memory>
#include <mutex>

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

struct ThreadScope::Impl {
  c10::InferenceMode guard;
};

ThreadScope::ThreadScope(int threads) : impl_(std::make_unique<Impl>()) {
  at::set_num_threads(threads);
}
ThreadScope::~ThreadScope() = default;

void configure_process() {
  static std::once_flag once;
  std::call_once(once, [] {
#ifdef __GLIBC__
    // The outputs of kernels without an out-variant (attention) are temporaries of megabytes. By
    // default glibc maps and unmaps each of them; every fresh page costs a fault. Kept in the heap,
    // they are faulted in once.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  });
}

}  // namespace tessera::kernels
