#include "tessera/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"

namespace tessera {
namespace {

constexpr int64_t kLooked = 1 << 16;  // tokens that open() looks at in a file

tl::unexpected<Error> data_error(std::string_view message) {
  return invalid_input(fmt::format("data: {}", message));
}

std::string unit_name(const TokenFile& file) {
  return file.format() == TokenFormat::kBytes ? "bytes" : "tokens";
}

Result<TokenFile> open_file(const std::string& path, const std::optional<TokenFormat>& given) {
  const std::optional<TokenFormat> format = given ? given : token_format_of_file(path);
  if (!format) {
    return data_error(fmt::format(
        "'{}': expected format = \"uint16\", \"uint32\" or \"megatron\" for it, found none", path));
  }
  auto file = TokenFile::open(path, *format);
  if (!file) return data_error(file.error().message);
  return file;
}

}  // namespace

int64_t TokenCorpus::Opened::units() const {
  return padded ? static_cast<int64_t>(documents.size()) : first_window.back();
}

Result<TokenCorpus::Opened> TokenCorpus::open_source(const Source& source, const Wants& wants) {
  Opened opened;
  opened.padded = source.padded;
  opened.first_window.push_back(0);
  const int64_t shortest = source.padded ? 2 : wants.length;
  std::string longest, unit = "bytes";
  int64_t most = -1;
  for (const std::string& path : source.paths) {
    TESSERA_TRY(TokenFile file, open_file(path, source.format));
    if (file.tokens() > most) {
      most = file.tokens();
      longest = file.path();
      unit = unit_name(file);
    }
    if (file.tokens() < shortest) continue;
    if (source.padded && !file.has_index() && source.end_of_document < 0 &&
        file.format() != TokenFormat::kBytes) {
      return data_error(
          fmt::format("'{}': expected end_of_document with documents = \"padded\", "
                      "since the file does not say where documents end",
                      path));
    }
    if (source.padded) {
      const std::vector<int64_t> begins = file.documents(source.end_of_document);
      for (size_t d = 0; d + 1 < begins.size(); ++d) {
        const int64_t tokens = begins[d + 1] - begins[d];
        if (tokens >= shortest)
          opened.documents.push_back({opened.files.size(), begins[d], tokens});
      }
    } else {
      opened.first_window.push_back(opened.first_window.back() + file.tokens() - wants.length + 1);
    }
    opened.files.push_back(std::move(file));
  }
  if (opened.units() > 0) return opened;
  if (source.padded) {
    return data_error(
        fmt::format("expected a document of at least 2 tokens, found none in {} "
                    "files, of which '{}' has the most {}",
                    source.paths.size(), longest, unit));
  }
  return data_error(
      fmt::format("expected a file of more than {} {} (seq = {}), the longest of {}, "
                  "'{}', has {}",
                  wants.length - 1, unit, wants.length - 1, source.paths.size(), longest, most));
}

Status TokenCorpus::set_shares(const std::vector<Source>& sources) {
  const auto weighed = std::count_if(sources.begin(), sources.end(),
                                     [](const Source& source) { return source.weight > 0; });
  if (weighed != 0 && static_cast<size_t>(weighed) != sources.size()) {
    return data_error(fmt::format("expected a weight in each of {} sources or in none, found {}",
                                  sources.size(), weighed));
  }
  double sum = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    sum += weighed > 0 ? sources[i].weight : static_cast<double>(sources_[i].units());
    sources_[i].share = sum;
  }
  for (Opened& source : sources_) source.share /= sum;
  sources_.back().share = 1;
  return {};
}

Result<TokenCorpus> TokenCorpus::open(const std::vector<Source>& sources, const Wants& wants) {
  if (sources.empty()) return data_error("expected at least one file or glob");
  TokenCorpus corpus;
  corpus.wants_ = wants;
  for (const Source& source : sources) {
    TESSERA_TRY(Opened opened, open_source(source, wants));
    corpus.sources_.push_back(std::move(opened));
  }
  TESSERA_TRY_VOID(corpus.set_shares(sources));
  std::vector<int64_t> tokens;
  for (const Opened& source : corpus.sources_) {
    for (const TokenFile& file : source.files) {
      if (file.holds_only_below(wants.vocab)) continue;
      const int64_t count = std::min(kLooked, file.tokens());
      tokens.resize(static_cast<size_t>(count));
      file.read(0, count, tokens.data());
      TESSERA_TRY_VOID(corpus.check(file, 0, count, tokens.data()));
    }
  }
  return corpus;
}

int64_t TokenCorpus::files() const {
  size_t files = 0;
  for (const Opened& source : sources_) files += source.files.size();
  return static_cast<int64_t>(files);
}

int64_t TokenCorpus::bytes() const {
  int64_t bytes = 0;
  for (const Opened& source : sources_) {
    for (const TokenFile& file : source.files) bytes += file.bytes();
  }
  return bytes;
}

TokenCorpus::Place TokenCorpus::place(int64_t seed, int64_t step, int64_t sequence) const {
  const Philox philox{
      static_cast<uint64_t>(seed),
      stable_hash(wants_.stream.data(), wants_.stream.size(), static_cast<uint64_t>(step))};
  const auto words = philox.block(static_cast<uint64_t>(sequence));
  const uint64_t draw = (uint64_t{words[0]} << 32) | words[1];
  const auto which = static_cast<double>(((uint64_t{words[2]} << 32) | words[3]) >> 11) * 0x1p-53;
  const Opened& source = *std::find_if(sources_.begin(), sources_.end() - 1,
                                       [&](const Opened& one) { return which < one.share; });
  const auto units = static_cast<uint64_t>(source.units());
  const auto unit = static_cast<int64_t>(draw % units);
  if (source.padded) {
    const Document& document = source.documents[static_cast<size_t>(unit)];
    const int64_t windows = std::max<int64_t>(1, document.tokens - wants_.length + 1);
    const auto skip = static_cast<int64_t>(draw / units % static_cast<uint64_t>(windows));
    return {&source.files[document.file], document.begin + skip,
            std::min(document.tokens, wants_.length)};
  }
  const auto& first = source.first_window;
  const auto above = std::upper_bound(first.begin(), first.end(), unit);
  const auto file = static_cast<size_t>(above - first.begin()) - 1;
  return {&source.files[file], unit - first[file], wants_.length};
}

Status TokenCorpus::check(const TokenFile& file, int64_t position, int64_t count,
                          const int64_t* tokens) const {
  const int64_t* wrong = std::find_if(
      tokens, tokens + count, [&](int64_t token) { return token < 0 || token >= wants_.vocab; });
  if (wrong == tokens + count) return {};
  return data_error(fmt::format("'{}', token {}: expected a token below {} (vocab = {}), found {}",
                                file.path(), position + (wrong - tokens), wants_.vocab,
                                wants_.vocab, *wrong));
}

Status TokenCorpus::read(int64_t seed, int64_t step, int64_t sequence, int64_t offset,
                         int64_t count, int64_t* out) const {
  TESSERA_CHECK(offset >= 0 && count >= 0 && offset + count <= wants_.length,
                "tokens {} + {} of a sequence of {}", offset, count, wants_.length);
  const Place at = place(seed, step, sequence);
  const int64_t there = std::clamp<int64_t>(at.tokens - offset, 0, count);
  at.file->read(at.begin + std::min(offset, at.tokens), there, out);
  std::fill(out + there, out + count, kNoToken);
  if (at.file->holds_only_below(wants_.vocab)) return {};
  return check(*at.file, at.begin + offset, there, out);
}

}  // namespace tessera
