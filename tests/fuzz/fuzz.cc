#include "fuzz.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "support/seed.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

int64_t rounds() {
  const char* given = std::getenv("TESSERA_FUZZ");
  return given == nullptr ? 1000 : std::stoll(given);
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  ASSERT_TRUE(out.good()) << path;
}

bool is_text(const std::string& bytes) {
  return std::none_of(bytes.begin(), bytes.end(), [](char letter) {
    return std::iscntrl(static_cast<unsigned char>(letter)) != 0 && letter != '\n' &&
           letter != '\t';
  });
}

// Returns why the message is not one line: a control character, its size, or that it is empty; ""
// if it is one line.
std::string why_no_line(const Error& error) {
  const std::string& text = error.message;
  if (text.empty()) return "an empty message";
  if (text.size() > Fuzz::kMostMessage) return fmt::format("{} bytes", text.size());
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (code < 0x20 || code == 0x7f) return fmt::format("control character {:#x}", code);
  }
  return "";
}

}  // namespace

Fuzz::Fuzz(std::string kind, std::vector<FuzzFile> files, int64_t most_bytes)
    : kind_(std::move(kind)),
      files_(std::move(files)),
      most_bytes_(most_bytes),
      random_(test_seed(11)) {
  // Files are synced, so they lie in memory if there is such a folder.
  const fs::path shared = "/dev/shm";
  folder_ = ((fs::is_directory(shared) ? shared : fs::temp_directory_path()) /
             fmt::format("tessera_fuzz_{}_{}", kind_, ::getpid()))
                .string();
  fs::create_directories(folder_);
  for (const FuzzFile& file : files_) {
    fs::create_directories(fs::path(folder_ + "/" + file.name).parent_path());
    write(folder_ + "/" + file.name, file.good);
  }
}

Fuzz::~Fuzz() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

// Changes a file that has numbers at fixed places: writes values that are extreme at some width,
// and cuts, adds, moves or flips bytes.
void Fuzz::change_bytes(std::string& bytes) {
  if (bytes.empty()) bytes = "x";
  const size_t at = below(2) == 0 ? below(bytes.size()) : below(std::min<size_t>(bytes.size(), 64));
  switch (below(8)) {
    case 0: bytes.resize(below(bytes.size() + 1)); break;
    case 1: bytes.append(below(64), static_cast<char>(below(256))); break;
    case 2: bytes.erase(at, 1 + below(8)); break;
    case 3: bytes.insert(at, bytes.substr(below(bytes.size()), below(64))); break;
    case 4:
    case 5: {
      constexpr uint64_t kExtremes[] = {0,
                                        1,
                                        0x7f,
                                        0x80,
                                        0xffff,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        0x7fffffffffffffff,
                                        0x8000000000000000,
                                        0xffffffffffffffff};
      const uint64_t value = kExtremes[below(std::size(kExtremes))] + below(3) - 1;
      const size_t width = std::min<size_t>(size_t{1} << below(4), bytes.size() - at);
      std::memcpy(&bytes[at], &value, width);
      break;
    }
    default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
  }
}

// Changes a text, above all JSON: replaces a number, name or value by another, and loses, doubles
// or adds pieces.
void Fuzz::change_text(std::string& text) {
  static const std::vector<std::string> kPieces = {"0",
                                                   "-1",
                                                   "1",
                                                   "1000",
                                                   "1000000",
                                                   "99999999",
                                                   "2147483648",
                                                   "9223372036854775807",
                                                   "18446744073709551616",
                                                   "1e308",
                                                   "-1e999",
                                                   "0.5",
                                                   "null",
                                                   "true",
                                                   "[]",
                                                   "{}",
                                                   "[",
                                                   "}",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\"x\"",
                                                   "\"a\\nb\"",
                                                   "\\u0000",
                                                   "\\ud800",
                                                   "\xff\xfe",
                                                   "\n",
                                                   "../"};
  if (text.empty()) text = "x";
  const size_t at = below(text.size());
  switch (below(20)) {
    case 0: text.resize(at); break;
    case 1: text.erase(at, 1 + below(8)); break;
    case 2: text.insert(at, text.substr(below(text.size()), below(64))); break;
    case 3: text.insert(at, std::string(100'000, "[{\"x"[below(4)])); break;
    case 4: {
      std::string nested;
      for (int i = 0; i < 20'000; ++i) nested += "{\"a\":";
      text.insert(at, nested);
      break;
    }
    case 5: text[at] = static_cast<char>(text[at] ^ (1 << below(8))); break;
    case 6: text.insert(at, kPieces[below(kPieces.size())]); break;
    default: {  // a number or a quoted text
      const bool number = below(3) > 0;
      const auto begins = [&](size_t i) {
        return number ? std::isdigit(static_cast<unsigned char>(text[i])) != 0 : text[i] == '"';
      };
      size_t begin = at;
      while (begin < text.size() && !begins(begin)) ++begin;
      if (begin == text.size()) break;
      size_t end = begin + 1;
      while (end < text.size() && (number ? begins(end) : text[end] != '"')) ++end;
      if (!number) end = std::min(text.size(), end + 1);
      text.replace(begin, end - begin, kPieces[below(kPieces.size())]);
    }
  }
}

std::string Fuzz::damaged(std::string bytes) {
  const bool text = is_text(bytes);
  for (uint64_t changes = below(3) > 0 ? 1 : 2; changes > 0; --changes) {
    // A file of numbers with a JSON header is changed in either way.
    if (text ? below(8) > 0 : below(2) > 0) {
      change_text(bytes);
    } else {
      change_bytes(bytes);
    }
  }
  return bytes;
}

void Fuzz::run(const std::function<Status(const std::string& folder)>& read) {
  SCOPED_TRACE(seed_text());
  const Status whole = read(folder_);
  ASSERT_TRUE(whole) << kind_ << ": the files as they are: " << whole.error().message;
  const int64_t count = rounds();
  int64_t refused = 0, most = 0;
  for (int64_t round = 0; round < count && !::testing::Test::HasFailure(); ++round) {
    const FuzzFile& file = files_[below(files_.size())];
    const std::string path = folder_ + "/" + file.name;
    std::string bytes = damaged(file.good);
    if (file.seal) bytes = file.seal(std::move(bytes));
    write(path, bytes);
    reset_peak();
    const Status done = read(folder_);
    const int64_t peak = peak_bytes();
    most = std::max(most, peak);
    if (!done) {
      ++refused;
      EXPECT_EQ(why_no_line(done.error()), "") << done.error().message.substr(0, 3000);
    }
    EXPECT_LE(peak, most_bytes_) << (done ? "taken" : done.error().message);
    if (::testing::Test::HasFailure()) {
      const fs::path kept =
          fs::temp_directory_path() / fmt::format("tessera_fuzz_{}_{}", kind_, round);
      write(kept.string(), bytes);
      ADD_FAILURE() << kind_ << ", round " << round << ": kept as " << kept;
    }
    write(path, file.good);
  }
  fmt::print("{}: {} of {} files refused, at most {} bytes held\n", kind_, refused, count, most);
  EXPECT_GE(refused, count / 20);
}

}  // namespace tessera
