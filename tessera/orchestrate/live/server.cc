#include "tessera/orchestrate/live/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"

namespace tessera::share {
namespace {

using Time = std::chrono::steady_clock::time_point;
constexpr size_t kLeastToken = 16;
constexpr size_t kMostAnswerBytes = 64 << 20;

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

Result<Address> unix_address(const std::string& path) {
  Address out;
  auto* to = reinterpret_cast<sockaddr_un*>(&out.bytes);
  if (path.empty() || path.size() >= sizeof to->sun_path) {
    return invalid_input(
        fmt::format("{}: expected a path of at most {} bytes for a socket, found {}", path,
                    sizeof to->sun_path - 1, path.size()));
  }
  to->sun_family = AF_UNIX;
  std::memcpy(to->sun_path, path.data(), path.size());
  out.size = sizeof(sockaddr_un);
  return out;
}

Result<Address> tcp_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto port =
      colon == std::string::npos ? Result<int64_t>(-1) : parse_int(text.substr(colon + 1));
  Address out;
  auto* to = reinterpret_cast<sockaddr_in*>(&out.bytes);
  to->sin_family = AF_INET;
  out.size = sizeof(sockaddr_in);
  if (!port || *port < 0 || *port > 65535 ||
      ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &to->sin_addr) != 1) {
    return invalid_input(fmt::format(
        "--listen: expected an address and a port, as 127.0.0.1:7000, found '{}'", text));
  }
  to->sin_port = htons(static_cast<uint16_t>(*port));
  return out;
}

bool is_listened_to(const Address& address) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(socket.number(), address.get(), address.size) == 0;
}

nlohmann::json refusal(const std::string& message) {
  return {{"error", {{"code", exit_code(ErrorCode::kInvalidInput)}, {"message", message}}}};
}

struct Client {
  Descriptor socket;
  std::string in, out;
  // How long it may still keep the server waiting. The time of answers does not count.
  Time::duration left;
  bool ends = false;  // the connection ends behind the answer
};

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ = static_cast<unsigned char>(differ | (a[i] ^ b[i]));
  return differ == 0;
}

struct Server::Impl {
  Descriptor socket;
  std::string path;   // of the socket file; "": TCP
  std::string token;  // of TCP
  std::vector<Client> clients;

  ~Impl() {
    if (!path.empty()) ::unlink(path.c_str());
  }

  void accept() {
    Descriptor fresh(::accept4(socket.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fresh.number() < 0 || clients.size() >= kMostClients) return;
    clients.push_back({std::move(fresh), "", "", patience(), false});
  }

  static Time::duration patience() {
    return std::chrono::milliseconds(static_cast<int64_t>(kMostWaitS * 1000));
  }

  nlohmann::json answer(const std::string& line, const Handler& handler, bool& ends) const {
    const auto request = parse_json(line);
    ends = true;
    if (!request || !request->is_object())
      return refusal("expected a request that is a JSON object on one line");
    if (!token.empty()) {
      const auto given = request->find("token");
      if (given == request->end() || !given->is_string() ||
          !equal_in_constant_time(given->get_ref<const std::string&>(), token))
        return refusal("expected the controller's token, found another or none");
    }
    ends = false;
    return handler(*request);
  }

  // Reads and answers; returns whether the connection goes on.
  bool serve(Client& client, const Handler& handler) const {
    char bytes[4096];
    const ssize_t got = ::recv(client.socket.number(), bytes, sizeof bytes, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) return true;
    client.in.append(bytes, static_cast<size_t>(got));
    client.left = patience();
    size_t end = 0;
    while (!client.ends && (end = client.in.find('\n')) != std::string::npos) {
      client.out += dumped(answer(client.in.substr(0, end), handler, client.ends)) + "\n";
      client.in.erase(0, end + 1);
    }
    if (!client.ends && client.in.size() > kMostRequestBytes) {
      client.out += dumped(refusal(fmt::format("expected a request of at most {} bytes, found more",
                                               kMostRequestBytes))) +
                    "\n";
      client.ends = true;
    }
    return true;
  }

  static bool send(Client& client) {
    const ssize_t sent =
        ::send(client.socket.number(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    client.out.erase(0, static_cast<size_t>(sent));
    return !(client.ends && client.out.empty());
  }
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

Result<Server> Server::on_unix(const std::string& path) {
  TESSERA_TRY(const Address address, unix_address(path));
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      return invalid_input(path + ": expected no file at the path of the socket, found one");
    if (is_listened_to(address)) {
      return invalid_input(path +
                           ": expected a free socket, found that a controller listens on it");
    }
    ::unlink(path.c_str());
  }
  auto impl = std::make_unique<Impl>();
  impl->socket = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const mode_t before = ::umask(0177);
  const bool bound = ::bind(impl->socket.number(), address.get(), address.size) == 0;
  ::umask(before);
  if (!bound || ::listen(impl->socket.number(), 16) != 0)
    return fault(fmt::format("{}: cannot listen: {}", path, std::strerror(errno)));
  impl->path = path;
  return Server(std::move(impl));
}

Result<Server> Server::on_tcp(const std::string& address, std::string token) {
  if (token.size() < kLeastToken) {
    return invalid_input(
        fmt::format("--token: expected a token of at least {} bytes to listen on TCP, found {}",
                    kLeastToken, token.size()));
  }
  TESSERA_TRY(const Address to, tcp_address(address));
  auto impl = std::make_unique<Impl>();
  impl->socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(impl->socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(impl->socket.number(), to.get(), to.size) != 0 ||
      ::listen(impl->socket.number(), 16) != 0)
    return fault(fmt::format("{}: cannot listen: {}", address, std::strerror(errno)));
  impl->token = std::move(token);
  return Server(std::move(impl));
}

int Server::port() const {
  sockaddr_in at{};
  socklen_t size = sizeof at;
  ::getsockname(impl_->socket.number(), reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.sin_port);
}

void Server::serve_until(Time until, const Handler& handler) {
  Impl& own = *impl_;
  while (true) {
    const Time now = std::chrono::steady_clock::now();
    if (now >= until) return;
    std::vector<pollfd> waits{{own.socket.number(), POLLIN, 0}};
    Time first = until;
    for (const Client& client : own.clients) {
      const bool sends = !client.out.empty();
      waits.push_back({client.socket.number(), static_cast<short>(sends ? POLLOUT : POLLIN), 0});
      first = std::min(first, now + client.left);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - now).count();
    if (::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60000))) <
        0)
      return;  // a signal
    const auto waited = std::chrono::steady_clock::now() - now;
    for (Client& client : own.clients) client.left -= waited;
    std::vector<bool> goes_on(own.clients.size(), true);
    for (size_t i = 0; i < goes_on.size(); ++i) {
      const short what = waits[i + 1].revents;
      if ((what & POLLOUT) != 0) {
        goes_on[i] = Impl::send(own.clients[i]);
      } else if (what != 0) {
        goes_on[i] = own.serve(own.clients[i], handler);
      } else {
        goes_on[i] = own.clients[i].left.count() > 0;
      }
    }
    size_t at = 0;
    std::erase_if(own.clients, [&](const Client&) { return !goes_on[at++]; });
    if (waits.front().revents != 0) own.accept();
  }
}

Result<nlohmann::json> ask_server(const std::string& address, const nlohmann::json& request) {
  const bool is_tcp =
      address.find('/') == std::string::npos && address.find(':') != std::string::npos;
  TESSERA_TRY(const Address to, is_tcp ? tcp_address(address) : unix_address(address));
  const Descriptor socket(::socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.number(), to.get(), to.size) != 0) {
    return invalid_input(fmt::format("{}: expected a controller that listens there, found none: {}",
                                     address, std::strerror(errno)));
  }
  const std::string line = dumped(request) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t some =
        ::send(socket.number(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (some <= 0) return fault(address + ": the controller ended the connection");
    sent += static_cast<size_t>(some);
  }
  std::string in;
  while (in.find('\n') == std::string::npos && in.size() < kMostAnswerBytes) {
    char bytes[4096];
    const ssize_t got = ::recv(socket.number(), bytes, sizeof bytes, 0);
    if (got <= 0) return fault(address + ": the controller ended the connection without an answer");
    in.append(bytes, static_cast<size_t>(got));
  }
  const auto answer = parse_json(in.substr(0, in.find('\n')));
  if (!answer) return fault(address + ": expected an answer that is JSON, found another");
  return *answer;
}

}  // namespace tessera::share
