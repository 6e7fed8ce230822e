// Settings of libtorch for the whole process or thread: the number of threads, no autograd, the
// memory of temporaries.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "tessera/runtime/kernels.h"
#include "tessera/runtime/kernels/placed_result.h"

namespace tessera::kernels {

struct ThreadScope::Impl {
  c10::InferenceMode guard;
};

int allowed_threads(int wanted, const char* limit) {
  const int most = limit == nullptr ? 0 : std::atoi(limit);
  return most > 0 ? std::min(wanted, most) : wanted;
}

// Sets the number of threads to at most what OpenMP may start, because a larger number gives wrong
// results: oneDNN cuts a product into as many pieces as the number says, and the pieces of threads
// that do not exist are silently left out (seen: half of the rows).
ThreadScope::ThreadScope(int threads) : impl_(std::make_unique<Impl>()) {
  at::set_num_threads(allowed_threads(threads, std::getenv("OMP_THREAD_LIMIT")));
}
ThreadScope::~ThreadScope() = default;

void configure_process() {
  static std::once_flag once;
  std::call_once(once, [] {
#ifdef __GLIBC__
    // Keeps large temporaries in the heap. The outputs of libtorch's kernels without an out-variant
    // (attention) are temporaries of megabytes. By default glibc maps and unmaps each temporary,
    // and every new page costs a page fault. In the heap each page faults only once.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
    PlacedResult::install();
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  });
}

}  // namespace tessera::kernels
