#include "tessera/export/fsdp.h"

#include <fmt/format.h>

namespace tessera {

Status check_fsdp(const ExportJob& job, std::string_view target) {
  const ExportSettings& s = job.settings;
  const auto refuse = [&](std::string_view setting, const std::string& why) {
    return cannot_express(job, target, setting, why);
  };
  if (s.pp > 1) return refuse("pp", "it has no pipelines");
  if (s.tp > 1) return refuse("tp", "its ranks do not share layers");
  if (s.ep > 1) return refuse("ep", "its ranks do not share experts");
  if (s.schedule != "1f1b")
    return refuse("schedule", "without a pipeline each micro-batch runs forward and backward");
  if (s.zero < 2) {
    return refuse("zero", fmt::format("it shards gradients at least (ZeRO-2 or 3); the plan has "
                                      "ZeRO-{}",
                                      s.zero));
  }
  if (s.zero == 2 && s.micro_batches > 1) {
    return refuse("zero",
                  "with several micro-batches FSDP2 gathers parameters for each; ZeRO-2 has them "
                  "whole (ZeRO-3 or one micro-batch can be said)");
  }
  if (s.zero == 3 && s.gathered_ahead != 1) {
    return refuse(origin_of(job, "gathered_ahead").empty() ? "zero" : "gathered_ahead",
                  fmt::format("FSDP2 always gathers one block ahead (prefetch = {{ units = "
                              "\"blocks.*\", ahead = 1 }}), the plan {}",
                              s.gathered_ahead));
  }
  if (s.recompute != "none" && s.recompute != "full") {
    return refuse("recompute",
                  fmt::format("it makes whole blocks again; the plan makes '{}'", s.recompute));
  }
  if (s.compute == DType::kFloat16)
    return refuse("precision", "float16 needs a scale of the loss that FSDP2 does not have");
  return {};
}

void set_fsdp(ExportSettings& settings, bool reshards, bool recomputes) {
  settings.zero = reshards ? 3 : 2;
  settings.gathered_ahead = reshards ? 1 : 0;  // without any key
  settings.recompute = recomputes ? "full" : "none";
}

std::vector<std::map<std::string, std::string>> fsdp_fixes() {
  return {{{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "none"}},
          {{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "full"}}};
}

}  // namespace tessera
