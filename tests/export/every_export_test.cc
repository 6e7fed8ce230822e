#include "every_export.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(EveryExport, comes_back_or_is_refused) { expect_every_export_comes_back(true); }

}  // namespace
}  // namespace tessera
