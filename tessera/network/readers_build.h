// Builds a network from what the readers find: switches and nodes with what is above each, in any
// order. A place that is said to be in two others is an error that names both.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tessera/network/network.h"

namespace tessera::network {

class NetworkBuilder {
 public:
  explicit NetworkBuilder(std::string file) : file_(std::move(file)) {}

  // Puts a switch below another one; `above` may be empty. Adds switches that are not yet there.
  Status add_switch(const std::string& name, const std::string& above, int line = 0);
  Status add_node(const std::string& name, const std::string& below, int line = 0);
  // Says that a node is a part of an accelerator domain. The node must be there.
  Status set_domain(const std::string& node, const std::string& domain, int line = 0);
  // Puts a node below a chain of switches, whose first one is at the top. Empty names are left out.
  Status add_chain(const std::string& node, const std::vector<std::string>& switches, int line = 0);
  // Returns the network, which must have a node and pass check().
  Result<Network> finish();

  NetworkSwitch* find(const std::string& name);
  const std::string& file() const { return file_; }
  tl::unexpected<Error> error(int line, const std::string& message) const;

 private:
  Status check_name(const std::string& name, std::string_view what, int line) const;

  std::string file_;
  Network network_;
  std::map<std::string, size_t> switches_, nodes_;  // by name
};

}  // namespace tessera::network
