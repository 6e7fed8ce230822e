// Reads what clouds tell of their networks: EC2's DescribeInstanceTopology and the physical hosts of
// GCP's instances. Both give the path of an instance from the top of the network.
#include <fmt/format.h>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/network/readers.h"
#include "tessera/network/readers_build.h"

namespace tessera::network {
namespace {

using Json = nlohmann::json;

Result<std::string> text_of(const NetworkBuilder& builder, const Json& object, const char* key,
                            std::string_view whose) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) {
    return builder.error(
        0, fmt::format("expected a text '{}' of {}, found {}", key, whose,
                       object.is_object() && object.contains(key) ? shown(object[key]) : "none"));
  }
  return object[key].get<std::string>();
}

// Returns the list of instances of an answer: the answer itself, or what its key holds.
Result<Json> instances(const NetworkBuilder& builder, std::string_view text,
                       std::initializer_list<const char*> keys) {
  auto json = parse_json(text);
  if (!json) return builder.error(0, "expected JSON, found another text");
  for (const char* key : keys) {
    if (json->is_object() && json->contains(key)) {
      Json inner = std::move((*json)[key]);
      *json = std::move(inner);
      break;
    }
  }
  if (!json->is_array())
    return builder.error(0, fmt::format("expected a list of instances, found {}", shown(*json)));
  return *std::move(json);
}

}  // namespace

Result<Network> read_ec2(std::string_view json, const std::string& file) {
  NetworkBuilder builder(file);
  TESSERA_TRY(const Json list, instances(builder, json, {"Instances"}));
  for (const Json& instance : list) {
    TESSERA_TRY(const std::string name, text_of(builder, instance, "InstanceId", "an instance"));
    if (!instance.contains("NetworkNodes") || !instance["NetworkNodes"].is_array()) {
      return builder.error(
          0, fmt::format("expected a list 'NetworkNodes' of instance '{}', found none", name));
    }
    std::vector<std::string> chain;
    for (const Json& node : instance["NetworkNodes"]) {
      if (!node.is_string()) {
        return builder.error(
            0, fmt::format("expected names in 'NetworkNodes' of instance '{}', found {}", name,
                           shown(node)));
      }
      chain.push_back(node.get<std::string>());
    }
    TESSERA_TRY_VOID(builder.add_chain(name, chain));
    if (instance.contains("CapacityBlockId") && instance["CapacityBlockId"].is_string() &&
        !instance["CapacityBlockId"].get<std::string>().empty())
      TESSERA_TRY_VOID(builder.set_domain(name, instance["CapacityBlockId"].get<std::string>()));
  }
  return builder.finish();
}

Result<Network> read_gcp(std::string_view json, const std::string& file) {
  NetworkBuilder builder(file);
  TESSERA_TRY(const Json list, instances(builder, json, {"items", "instances"}));
  for (const Json& instance : list) {
    TESSERA_TRY(const std::string name, text_of(builder, instance, "name", "an instance"));
    const std::string whose = fmt::format("instance '{}'", name);
    const Json* status =
        instance.contains("resourceStatus") ? &instance["resourceStatus"] : &instance;
    if (!status->is_object()) {
      return builder.error(0, fmt::format("expected an object 'resourceStatus' of {}, found {}",
                                          whose, shown(*status)));
    }
    std::vector<std::string> chain;
    if (status->contains("physicalHostTopology")) {
      const Json& place = (*status)["physicalHostTopology"];
      // The ids of blocks and sub-blocks are unique in what is above them only.
      TESSERA_TRY(const std::string cluster, text_of(builder, place, "cluster", whose));
      TESSERA_TRY(const std::string block, text_of(builder, place, "block", whose));
      TESSERA_TRY(const std::string subblock, text_of(builder, place, "subblock", whose));
      chain = {cluster, fmt::format("{}/{}", cluster, block),
               fmt::format("{}/{}/{}", cluster, block, subblock)};
    } else {
      // "/block/sub-block/host"
      TESSERA_TRY(const std::string place, text_of(builder, *status, "physicalHost", whose));
      std::string path;
      std::vector<std::string> parts = split_text(place, '/');
      std::erase(parts, "");
      if (parts.size() < 2) {
        return builder.error(
            0, fmt::format("expected 'physicalHost' of {} as /block/subblock/host, found '{}'",
                           whose, place));
      }
      parts.pop_back();
      for (const std::string& part : parts) {
        path += (path.empty() ? "" : "/") + part;
        chain.push_back(path);
      }
    }
    TESSERA_TRY_VOID(builder.add_chain(name, chain));
  }
  return builder.finish();
}

}  // namespace tessera::network
