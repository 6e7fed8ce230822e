#include "tessera/orchestrate/live/service.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/json_text.h"

namespace tessera::share {
namespace {

using Json = nlohmann::json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRequests = 1000;
#else
constexpr int kRequests = 200;
#endif

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : folder_(testing::TempDir() + "/tessera_service_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    for (const char* name : {"a", "b"}) {
      std::ofstream(folder_ + "/" + name + ".toml")
          << "steps = 9\ncheckpoint = { dir = \"" << name << "\" }\n";
    }
  }
  ~ServiceTest() override { std::filesystem::remove_all(folder_); }

  Result<Service> open() {
    return Service::open({.folder = folder_ + "/live",
                          .cluster = "2x4",
                          .policy = "default",
                          .program = "/bin/true",
                          .now_s = [this] { return now_s_ += 1; }});
  }

  std::vector<std::string> requests() const {
    const Json a{{"do", "submit"},    {"run", folder_ + "/a.toml"},
                 {"folder", folder_}, {"plan", "data_parallel({})"},
                 {"gpus", 2},         {"name", "a"}};
    Json b = a;
    b.update({{"run", folder_ + "/b.toml"},
              {"name", "b"},
              {"least", 1},
              {"most", 4},
              {"predicted", {{1, 2.5}, {2, 4.0}}},
              {"deadline_s", 50.5}});
    std::vector<std::string> out;
    for (const Json& one :
         {a, b, Json{{"do", "status"}}, Json{{"do", "explain"}, {"job", "a"}},
          Json{{"do", "cancel"}, {"job", "a"}}, Json{{"do", "drain"}, {"node", 1}}})
      out.push_back(dumped(one));
    return out;
  }

  std::string folder_;
  double now_s_ = 0;
};

// Changes some bytes, or puts a value in the place of another.
std::string mutated(const std::string& text, std::mt19937& draw) {
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(draw);
  };
  std::string out = text;
  if (below(2) == 0) {
    for (size_t k = below(4) + 1; k > 0; --k)
      out[below(out.size())] = static_cast<char>(below(256));
    return out;
  }
  Json json = Json::parse(text);
  auto at = json.begin();
  std::advance(at, static_cast<int>(below(json.size())));
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            -1,
                                            0,
                                            5,
                                            1e300,
                                            int64_t{1} << 62,
                                            "",
                                            "../a",
                                            "/",
                                            std::string("/\0x", 3),
                                            std::string(3000, 'x'),
                                            Json::array({1, "a"}),
                                            Json{{"a", Json::array()}},
                                            "b",
                                            "submit",
                                            "{}{}{}",
                                            "-h"};
  at.value() = kValues[below(kValues.size())];
  return dumped(json);
}

TEST_F(ServiceTest, TakesAnyRequestAndReplaysWhatItTook) {
  std::mt19937 draw(1);
  size_t jobs = 0;
  {
    auto service = open();
    ASSERT_TRUE(service) << service.error().message;
    const std::vector<std::string> all = requests();
    for (int k = 0; k < kRequests; ++k) {
      const std::string& plain = all[static_cast<size_t>(k) % all.size()];
      const std::string text = k < 12 ? plain : mutated(plain, draw);
      const auto request = parse_json(text);
      if (!request || !request->is_object()) continue;  // the server refuses it (server_test.cc)
      const auto answer = service->answer(*request);
      ASSERT_TRUE(answer) << text << ": " << answer.error().message;
      ASSERT_TRUE(answer->is_object()) << text;
      if (answer->contains("submitted")) ++jobs;
      const auto error = answer->find("error");
      if (error == answer->end() || error->is_string()) continue;
      EXPECT_EQ(error->at("code"), 2) << text;
      const auto message = error->at("message").get<std::string>();
      EXPECT_TRUE(message.find("expected") != std::string::npos || message.starts_with("cannot "))
          << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    EXPECT_GE(jobs, 2U);
  }
  const auto replayed = replay_journal(folder_ + "/live/journal");
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_EQ(replayed->jobs, jobs);
}

}  // namespace
}  // namespace tessera::share
