// How programs that are linked with mimalloc use it: what is freed is kept for what comes next (one
// plan after another takes the same memory), and pages are large.
#include <mimalloc.h>

namespace {

__attribute__((constructor)) void set_options() {
  mi_option_disable(mi_option_allow_decommit);
  mi_option_set(mi_option_decommit_delay, 3'600'000);  // ms: of what was taken before
  mi_option_enable(mi_option_large_os_pages);
}

}  // namespace
