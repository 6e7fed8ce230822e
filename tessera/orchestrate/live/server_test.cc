// The server answers requests, bounds them, and survives whatever is sent to it.
#include "tessera/orchestrate/live/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

namespace tessera::share {
namespace {

using namespace std::chrono_literals;

nlohmann::json echo(const nlohmann::json& request) { return {{"said", request.value("say", "")}}; }

// A folder that is removed, and a server that runs beside the test.
class Serving : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tessera_server_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/socket";
  }
  void TearDown() override {
    stop();
    std::filesystem::remove_all(folder_);
  }
  void start(Server server) {
    thread_ = std::thread([this, own = std::move(server)]() mutable {
      while (!stops_) own.serve_until(std::chrono::steady_clock::now() + 20ms, echo);
    });
  }
  void stop() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Sends bytes and returns what comes back until the end of the connection or of the first line.
  std::string raw(const std::string& bytes, bool half_close = true) const {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path_.copy(to.sun_path, sizeof to.sun_path - 1);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    [[maybe_unused]] const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (half_close) ::shutdown(socket, SHUT_WR);
    std::string out;
    char some[4096];
    for (ssize_t got = 0; (got = ::recv(socket, some, sizeof some, 0)) > 0;) {
      out.append(some, static_cast<size_t>(got));
      if (out.find('\n') != std::string::npos) break;
    }
    ::close(socket);
    return out;
  }

  std::string folder_, path_;
  std::thread thread_;
  std::atomic<bool> stops_ = false;
};

TEST_F(Serving, answers_come_back_and_only_the_user_may_ask) {
  auto server = Server::on_unix(path_);
  ASSERT_TRUE(server.has_value()) << server.error().message;
  struct stat found {};
  ASSERT_EQ(::stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  EXPECT_EQ(Server::on_unix(path_).error().message,
            path_ + ": expected a free socket, found that a controller listens on it");
  start(std::move(*server));
  EXPECT_EQ(ask_server(path_, {{"say", "hello"}}).value(), (nlohmann::json{{"said", "hello"}}));
  stop();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(ask_server(path_, {}).has_value());
}

TEST_F(Serving, requests_are_bounded) {
  auto server = Server::on_unix(path_);
  ASSERT_TRUE(server.has_value());
  start(std::move(*server));
  EXPECT_EQ(
      raw(std::string(kMostRequestBytes + 1, 'x')),
      R"({"error":{"code":2,"message":"expected a request of at most 65536 bytes, found more"}})"
      "\n");
  const std::string no_object =
      R"({"error":{"code":2,"message":"expected a request that is a JSON object on one line"}})"
      "\n";
  EXPECT_EQ(raw("[1]\n"), no_object);
  EXPECT_EQ(raw(std::string(40000, '[') + "\n"), no_object);
}

TEST_F(Serving, random_bytes_do_no_harm) {
  auto server = Server::on_unix(path_);
  ASSERT_TRUE(server.has_value());
  start(std::move(*server));
  std::mt19937 draw(7);
  const std::string pieces[] = {"{\"say\":", "\"",   "}",       "\n",   "{",
                                "[",         "null", "\\u0000", "\xff", "1e999"};
  for (int i = 0; i < 200; ++i) {
    std::string bytes;
    const size_t count = draw() % 12;
    for (size_t k = 0; k < count; ++k) bytes += pieces[draw() % std::size(pieces)];
    raw(bytes);
  }
  EXPECT_EQ(ask_server(path_, {{"say", "still here"}})->at("said"), "still here");
}

TEST_F(Serving, tcp_asks_for_the_token) {
  EXPECT_EQ(Server::on_tcp("127.0.0.1:0", "short").error().message,
            "--token: expected a token of at least 16 bytes to listen on TCP, found 5");
  auto server = Server::on_tcp("127.0.0.1:0", "0123456789abcdef");
  ASSERT_TRUE(server.has_value()) << server.error().message;
  const std::string address = "127.0.0.1:" + std::to_string(server->port());
  start(std::move(*server));
  EXPECT_EQ(ask_server(address, {{"say", "a"}})->at("error").at("message"),
            "expected the controller's token, found another or none");
  EXPECT_EQ(ask_server(address, {{"say", "a"}, {"token", "0123456789abcdef"}})->at("said"), "a");
}

TEST(ConstantTime, equal_texts_are_equal) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

}  // namespace
}  // namespace tessera::share
