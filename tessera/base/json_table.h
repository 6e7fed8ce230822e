// Reads an instance, which is a JSON object, key by key. Every error is one line with the path of
// the key: "bert.json: layers[2].hidden: expected a whole number of at least 1, found -3". done()
// refuses each key that nobody has asked for, so that a misspelt key is not silently left out.
//
//   TESSERA_TRY_VOID(in.require({"layers", "memory_mb"}));
//   TESSERA_TRY_VOID(in.real("memory_mb", memory_mb, 0));
//   TESSERA_TRY(const auto layers, in.tables("layers"));
//   for (const JsonTable& layer : layers) { ...; TESSERA_TRY_VOID(layer.done()); }
//   TESSERA_TRY_VOID(in.done());
//
// The JSON value must outlive its tables. The typed readers leave their target as it is if the key
// is absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

class JsonTable {
 public:
  // Makes a table of the value, which must be an object. `file` opens each error.
  static Result<JsonTable> make(const nlohmann::ordered_json& value, std::string file);

  bool has(const std::string& key) const;  // null counts as absent
  Status require(std::initializer_list<const char*> keys) const;
  Status done() const;

  Status real(const std::string& key, double& value,
              double least = -std::numeric_limits<double>::infinity()) const;
  Status whole(const std::string& key, int64_t& value, int64_t least = 0,
               int64_t most = int64_t{1} << 40) const;
  Status text(const std::string& key, std::string& value) const;
  Status choice(const std::string& key, std::string& value,
                const std::vector<std::string>& choices) const;
  Status flag(const std::string& key, bool& value) const;
  Status reals(const std::string& key, std::vector<double>& value,
               double least = -std::numeric_limits<double>::infinity()) const;
  Status wholes(const std::string& key, std::vector<int64_t>& value, int64_t least = 0,
                int64_t most = int64_t{1} << 40) const;
  Status texts(const std::string& key, std::vector<std::string>& value) const;
  Status whole_lists(const std::string& key, std::vector<std::vector<int64_t>>& value,
                     int64_t least, int64_t most) const;
  // Reads lists of equal length; null stands for infinity.
  Status matrix(const std::string& key, std::vector<std::vector<double>>& value,
                double least) const;
  Result<JsonTable> table(const std::string& key) const;  // an empty one if it is absent
  Result<std::vector<JsonTable>> tables(const std::string& key) const;  // none if it is absent
  std::vector<std::string> keys() const;

  tl::unexpected<Error> error(const std::string& key, const std::string& message) const;

 private:
  JsonTable(const nlohmann::ordered_json* value, std::string where)
      : value_(value), where_(std::move(where)) {}
  const nlohmann::ordered_json* find(const std::string& key) const;
  tl::unexpected<Error> expected(const std::string& key, const std::string& what,
                                 const nlohmann::ordered_json& found) const;

  const nlohmann::ordered_json* value_;
  std::string where_;  // "bert.json: layers[2]."
  std::shared_ptr<std::set<std::string>> asked_ = std::make_shared<std::set<std::string>>();
};

// Returns the value as text, of which an error repeats at most 60 characters.
std::string short_json(const nlohmann::ordered_json& value);

}  // namespace tessera
