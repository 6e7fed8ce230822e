// A server of requests on a socket: a request is one line of JSON, and so is its answer.
//
// By default it listens on a Unix socket that only its user may open. On TCP, which must be asked for,
// each request carries a token, which is compared in constant time. A request is at most
// kMostRequestBytes long; a longer one, or one that is no JSON object, gets an error as its answer and
// ends the connection. A client that does not send or read within kMostWaitS is dropped, and there are
// at most kMostClients at a time; none of them can hold up the others.
//
//   TESSERA_TRY(Server server, Server::on_unix("cluster/socket"));
//   server.serve_until(deadline, [](const nlohmann::json& request) { return answer; });
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera::share {

inline constexpr size_t kMostRequestBytes = 64 * 1024;
inline constexpr double kMostWaitS = 5;
inline constexpr size_t kMostClients = 64;

using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

class Server {
 public:
  // Listens on a new socket file with the rights 0600. A file that no server listens on any more is
  // replaced. Errors (invalid input): a path that is too long for a socket, another file at the path,
  // or a server that listens there.
  static Result<Server> on_unix(const std::string& path);
  // Listens on "HOST:PORT", where the host is a numeric address; port 0: any free one. `token`: at
  // least 16 bytes.
  static Result<Server> on_tcp(const std::string& address, std::string token);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();  // removes the socket file

  int port() const;
  // Serves until the time, or until a signal arrives.
  void serve_until(std::chrono::steady_clock::time_point until, const Handler& handler);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Sends a request, and returns the answer. `address`: the path of a Unix socket, or HOST:PORT. Errors:
// nobody listens there, or the answer is not one line of JSON (fault).
Result<nlohmann::json> ask_server(const std::string& address, const nlohmann::json& request);

// Compares in a time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace tessera::share
