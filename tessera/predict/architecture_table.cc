// Facts from the models' papers and their published configuration files.
#include "tessera/predict/architecture_table.h"

#include <utility>

namespace tessera {
namespace {

struct Sizes {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq;
  int64_t head_dim = 0;
};

constexpr Sizes kGpts[] = {
    // GPT-2, GPT-3 (Brown et al. 2020, table 2.1) and the sizes that NeMo added
    {"gpt2117m", 12, 768, 12, 12, 3072, 50257, 1024},
    {"gpt2124m", 12, 768, 12, 12, 3072, 50257, 1024},
    {"gpt2small", 12, 768, 12, 12, 3072, 50257, 1024},
    {"gpt2medium", 24, 1024, 16, 16, 4096, 50257, 1024},
    {"gpt2345m", 24, 1024, 16, 16, 4096, 50257, 1024},
    {"gpt2355m", 24, 1024, 16, 16, 4096, 50257, 1024},
    {"gpt2large", 36, 1280, 20, 20, 5120, 50257, 1024},
    {"gpt2774m", 36, 1280, 20, 20, 5120, 50257, 1024},
    {"gpt2xl", 48, 1600, 25, 25, 6400, 50257, 1024},
    {"gpt21.5b", 48, 1600, 25, 25, 6400, 50257, 1024},
    {"gpt28.3b", 72, 3072, 24, 24, 12288, 51200, 1024},  // "GPT-2 8.3B" (Shoeybi et al. 2019)
    {"gpt3125m", 12, 768, 12, 12, 3072, 51200, 2048},
    {"gpt3126m", 12, 768, 12, 12, 3072, 51200, 2048},
    {"gpt3350m", 24, 1024, 16, 16, 4096, 51200, 2048},
    {"gpt3760m", 24, 1536, 16, 16, 6144, 51200, 2048},
    {"gpt31.3b", 24, 2048, 16, 16, 8192, 51200, 2048},
    {"gpt32.7b", 32, 2560, 32, 32, 10240, 51200, 2048},
    {"gpt313b", 40, 5120, 40, 40, 20480, 51200, 2048},
    {"gpt35b", 24, 4096, 32, 32, 16384, 51200, 2048},
    {"gpt36.7b", 32, 4096, 32, 32, 16384, 51200, 2048},
    {"gpt320b", 44, 6144, 48, 48, 24576, 51200, 2048},
    {"gpt340b", 48, 8192, 64, 64, 32768, 51200, 2048},
    {"gpt3175b", 96, 12288, 96, 96, 49152, 51200, 2048},
    {"gptj6b", 28, 4096, 16, 16, 16384, 50400, 2048},
    {"gptneo1.3b", 24, 2048, 16, 16, 8192, 50257, 2048},
    {"gptneo2.7b", 32, 2560, 20, 20, 10240, 50257, 2048},
    {"gptneox20b", 44, 6144, 64, 64, 24576, 50432, 2048},
    // Megatron-LM (Narayanan et al. 2021, table 1; Korthikanti et al. 2022; Smith et al. 2022)
    {"gpt1.7b", 24, 2304, 24, 24, 9216, 51200, 2048},
    {"gpt3.6b", 30, 3072, 32, 32, 12288, 51200, 2048},
    {"gpt7.5b", 36, 4096, 32, 32, 16384, 51200, 2048},
    {"gpt18.4b", 40, 6144, 48, 48, 24576, 51200, 2048},
    {"gpt18b", 40, 6144, 48, 48, 24576, 51200, 2048},
    {"gpt22b", 48, 6144, 64, 64, 24576, 51200, 2048},
    {"gpt39b", 48, 8192, 64, 64, 32768, 51200, 2048},
    {"gpt39.1b", 48, 8192, 64, 64, 32768, 51200, 2048},
    {"gpt76b", 60, 10240, 80, 80, 40960, 51200, 2048},
    {"gpt76.1b", 60, 10240, 80, 80, 40960, 51200, 2048},
    {"gpt145b", 80, 12288, 96, 96, 49152, 51200, 2048},
    {"gpt145.6b", 80, 12288, 96, 96, 49152, 51200, 2048},
    {"gpt175b", 96, 12288, 96, 96, 49152, 51200, 2048},
    {"gpt310b", 96, 16384, 128, 128, 65536, 51200, 2048},
    {"gpt530b", 105, 20480, 128, 128, 81920, 51200, 2048},
    {"gpt1t", 128, 25600, 160, 160, 102400, 51200, 2048},
    {"gpt1008b", 128, 25600, 160, 160, 102400, 51200, 2048},
    {"mtnlg530b", 105, 20480, 128, 128, 81920, 50257, 2048},
    {"mtnlg", 105, 20480, 128, 128, 81920, 50257, 2048},
    {"turingnlg", 78, 4256, 28, 28, 17024, 50257, 1024},
    // MPT (MosaicML)
    {"mpt125m", 12, 768, 12, 12, 3072, 50368, 2048},
    {"mpt350m", 24, 1024, 16, 16, 4096, 50368, 2048},
    {"mpt760m", 24, 1536, 12, 12, 6144, 50368, 2048},
    {"mpt1b", 24, 2048, 16, 16, 8192, 50368, 2048},
    {"mpt3b", 32, 2560, 20, 20, 10240, 50368, 2048},
    {"mpt7b", 32, 4096, 32, 32, 16384, 50368, 2048},
    {"mpt13b", 40, 5120, 40, 40, 20480, 50368, 2048},
    {"mpt30b", 48, 7168, 56, 56, 28672, 50368, 2048},
    {"mpt70b", 64, 8192, 64, 64, 32768, 50368, 2048},
    // OPT (Zhang et al. 2022)
    {"opt125m", 12, 768, 12, 12, 3072, 50272, 2048},
    {"opt350m", 24, 1024, 16, 16, 4096, 50272, 2048},
    {"opt1.3b", 24, 2048, 32, 32, 8192, 50272, 2048},
    {"opt2.7b", 32, 2560, 32, 32, 10240, 50272, 2048},
    {"opt6.7b", 32, 4096, 32, 32, 16384, 50272, 2048},
    {"opt13b", 40, 5120, 40, 40, 20480, 50272, 2048},
    {"opt30b", 48, 7168, 56, 56, 28672, 50272, 2048},
    {"opt66b", 64, 9216, 72, 72, 36864, 50272, 2048},
    {"opt175b", 96, 12288, 96, 96, 49152, 50272, 2048},
    // BLOOM (Le Scao et al. 2022)
    {"bloom560m", 24, 1024, 16, 16, 4096, 250880, 2048},
    {"bloom1b1", 24, 1536, 16, 16, 6144, 250880, 2048},
    {"bloom1b7", 24, 2048, 16, 16, 8192, 250880, 2048},
    {"bloom3b", 30, 2560, 32, 32, 10240, 250880, 2048},
    {"bloom7b1", 30, 4096, 32, 32, 16384, 250880, 2048},
    {"bloom7b", 30, 4096, 32, 32, 16384, 250880, 2048},
    {"bloom176b", 70, 14336, 112, 112, 57344, 250880, 2048},
    {"bloom", 70, 14336, 112, 112, 57344, 250880, 2048},
    // Falcon (Almazrouei et al. 2023)
    {"falcon1b", 24, 2048, 32, 32, 8192, 50304, 2048},
    {"falcon7b", 32, 4544, 71, 1, 18176, 65024, 2048},
    {"falcon40b", 60, 8192, 128, 8, 32768, 65024, 2048},
    {"falcon180b", 80, 14848, 232, 8, 59392, 65024, 2048},
    // Pythia, Cerebras-GPT, StarCoder, Phi, Gopher, GLM, Nemotron (squared ReLU, ungated)
    {"pythia160m", 12, 768, 12, 12, 3072, 50304, 2048},
    {"pythia410m", 24, 1024, 16, 16, 4096, 50304, 2048},
    {"pythia1b", 16, 2048, 8, 8, 8192, 50304, 2048},
    {"pythia1.4b", 24, 2048, 16, 16, 8192, 50304, 2048},
    {"pythia2.8b", 32, 2560, 32, 32, 10240, 50304, 2048},
    {"pythia6.9b", 32, 4096, 32, 32, 16384, 50432, 2048},
    {"pythia12b", 36, 5120, 40, 40, 20480, 50688, 2048},
    {"cerebrasgpt13b", 40, 5120, 40, 40, 20480, 50257, 2048},
    {"cerebrasgpt6.7b", 32, 4096, 32, 32, 16384, 50257, 2048},
    {"starcoder", 40, 6144, 48, 1, 24576, 49152, 8192},
    {"starcoder23b", 30, 3072, 24, 2, 12288, 49152, 4096},
    {"starcoder27b", 32, 4608, 36, 4, 18432, 49152, 4096},
    {"starcoder215b", 40, 6144, 48, 4, 24576, 49152, 4096},
    {"phi1", 24, 2048, 32, 32, 8192, 51200, 2048},
    {"phi2", 32, 2560, 32, 32, 10240, 51200, 2048},
    {"gopher", 80, 16384, 128, 128, 65536, 32000, 2048},
    {"chinchilla", 80, 8192, 64, 64, 32768, 32000, 2048},
    {"nemotron38b", 32, 4096, 32, 32, 16384, 256000, 4096},
    {"nemotron322b", 40, 6144, 48, 48, 24576, 256000, 4096},
    {"nemotron415b", 32, 6144, 48, 8, 24576, 256000, 4096},
    {"nemotron4340b", 96, 18432, 96, 8, 73728, 256000, 4096},
    {"minitron4b", 32, 3072, 24, 8, 9216, 256000, 4096, 128},
};

constexpr Sizes kLlamas[] = {
    {"llama17b", 32, 4096, 32, 32, 11008, 32000, 2048},
    {"llama113b", 40, 5120, 40, 40, 13824, 32000, 2048},
    {"llama130b", 60, 6656, 52, 52, 17920, 32000, 2048},
    {"llama133b", 60, 6656, 52, 52, 17920, 32000, 2048},
    {"llama165b", 80, 8192, 64, 64, 22016, 32000, 2048},
    {"llama7b", 32, 4096, 32, 32, 11008, 32000, 2048},
    {"llama13b", 40, 5120, 40, 40, 13824, 32000, 2048},
    {"llama30b", 60, 6656, 52, 52, 17920, 32000, 2048},
    {"llama33b", 60, 6656, 52, 52, 17920, 32000, 2048},
    {"llama65b", 80, 8192, 64, 64, 22016, 32000, 2048},
    {"llama70b", 80, 8192, 64, 8, 28672, 32000, 4096},
    {"llama27b", 32, 4096, 32, 32, 11008, 32000, 4096},
    {"llama213b", 40, 5120, 40, 40, 13824, 32000, 4096},
    {"llama234b", 48, 8192, 64, 8, 22016, 32000, 4096},
    {"llama270b", 80, 8192, 64, 8, 28672, 32000, 4096},
    {"codellama34b", 48, 8192, 64, 8, 22016, 32000, 16384},
    {"llama38b", 32, 4096, 32, 8, 14336, 128256, 8192},
    {"llama370b", 80, 8192, 64, 8, 28672, 128256, 8192},
    {"llama3.18b", 32, 4096, 32, 8, 14336, 128256, 8192},
    {"llama3.170b", 80, 8192, 64, 8, 28672, 128256, 8192},
    {"llama3.1405b", 126, 16384, 128, 8, 53248, 128256, 8192},
    {"llama3405b", 126, 16384, 128, 8, 53248, 128256, 8192},
    {"llama3.21b", 16, 2048, 32, 8, 8192, 128256, 8192},
    {"llama3.23b", 28, 3072, 24, 8, 8192, 128256, 8192, 128},
    {"llama3.370b", 80, 8192, 64, 8, 28672, 128256, 8192},
    {"tinyllama", 22, 2048, 32, 4, 5632, 32000, 2048},
    {"mistral7b", 32, 4096, 32, 8, 14336, 32000, 8192},
    {"mistralnemo", 40, 5120, 32, 8, 14336, 131072, 8192, 128},
    {"mistralnemo12b", 40, 5120, 32, 8, 14336, 131072, 8192, 128},
    {"mistralsmall24b", 40, 5120, 32, 8, 32768, 131072, 8192, 128},
    {"mistrallarge", 88, 12288, 96, 8, 28672, 32768, 8192},
    {"codestral22b", 56, 6144, 48, 8, 16384, 32768, 8192},
    {"yi6b", 32, 4096, 32, 4, 11008, 64000, 4096},
    {"yi9b", 48, 4096, 32, 4, 11008, 64000, 4096},
    {"yi34b", 60, 7168, 56, 8, 20480, 64000, 4096},
    {"qwen7b", 32, 4096, 32, 32, 11008, 151936, 2048},
    {"qwen14b", 40, 5120, 40, 40, 13696, 152064, 2048},
    {"qwen72b", 80, 8192, 64, 64, 24576, 152064, 4096},
    {"qwen1.57b", 32, 4096, 32, 32, 11008, 151936, 4096},
    {"qwen1.514b", 40, 5120, 40, 40, 13696, 152064, 4096},
    {"qwen1.572b", 80, 8192, 64, 64, 24576, 152064, 4096},
    {"qwen20.5b", 24, 896, 14, 2, 4864, 151936, 4096},
    {"qwen21.5b", 28, 1536, 12, 2, 8960, 151936, 4096},
    {"qwen27b", 28, 3584, 28, 4, 18944, 152064, 4096},
    {"qwen272b", 80, 8192, 64, 8, 29568, 152064, 4096},
    {"qwen2.50.5b", 24, 896, 14, 2, 4864, 151936, 4096},
    {"qwen2.51.5b", 28, 1536, 12, 2, 8960, 151936, 4096},
    {"qwen2.53b", 36, 2048, 16, 2, 11008, 151936, 4096},
    {"qwen2.57b", 28, 3584, 28, 4, 18944, 152064, 4096},
    {"qwen2.514b", 48, 5120, 40, 8, 13824, 152064, 4096},
    {"qwen2.532b", 64, 5120, 40, 8, 27648, 152064, 4096},
    {"qwen2.572b", 80, 8192, 64, 8, 29568, 152064, 4096},
    {"qwen30.6b", 28, 1024, 16, 8, 3072, 151936, 4096, 128},
    {"qwen31.7b", 28, 2048, 16, 8, 6144, 151936, 4096, 128},
    {"qwen34b", 36, 2560, 32, 8, 9728, 151936, 4096, 128},
    {"qwen38b", 36, 4096, 32, 8, 12288, 151936, 4096, 128},
    {"qwen314b", 40, 5120, 40, 8, 17408, 151936, 4096, 128},
    {"qwen332b", 64, 5120, 64, 8, 25600, 151936, 4096, 128},
    {"deepseek7b", 30, 4096, 32, 32, 11008, 102400, 4096},
    {"deepseek67b", 95, 8192, 64, 8, 22016, 102400, 4096},
    {"internlm7b", 32, 4096, 32, 32, 11008, 103168, 2048},
    {"internlm20b", 60, 5120, 40, 40, 13824, 103168, 4096},
    {"internlm27b", 32, 4096, 32, 8, 14336, 92544, 4096},
    {"internlm220b", 48, 6144, 48, 8, 16384, 92544, 4096},
    {"baichuan7b", 32, 4096, 32, 32, 11008, 64000, 4096},
    {"baichuan13b", 40, 5120, 40, 40, 13696, 64000, 4096},
    {"baichuan27b", 32, 4096, 32, 32, 11008, 125696, 4096},
    {"baichuan213b", 40, 5120, 40, 40, 13696, 125696, 4096},
    {"chatglm26b", 28, 4096, 32, 2, 13696, 65024, 2048},
    {"chatglm36b", 28, 4096, 32, 2, 13696, 65024, 2048},
    {"glm49b", 40, 4096, 32, 2, 13696, 151552, 4096},
    {"glm130b", 70, 12288, 96, 96, 32768, 150528, 2048},
    {"aquila7b", 32, 4096, 32, 32, 11008, 100008, 2048},
    {"aquila33b", 60, 6144, 48, 8, 24576, 100008, 2048},
    {"aquila233b", 60, 6144, 48, 8, 24576, 100008, 2048},
    {"aquila270b", 80, 8192, 64, 8, 28672, 100008, 4096},
    {"skywork13b", 52, 4608, 36, 36, 12288, 65536, 4096},
    // Command R (Cohere 2024)
    {"commandr", 40, 8192, 64, 64, 22528, 256000, 8192},
    {"commandr35b", 40, 8192, 64, 64, 22528, 256000, 8192},
    {"commandrplus", 64, 12288, 96, 8, 33792, 256000, 8192},
    {"gemma2b", 18, 2048, 8, 1, 16384, 256000, 8192, 256},
    {"gemma7b", 28, 3072, 16, 16, 24576, 256000, 8192, 256},
    {"gemma22b", 26, 2304, 8, 4, 9216, 256000, 8192, 256},
    {"gemma29b", 42, 3584, 16, 8, 14336, 256000, 8192, 256},
    {"gemma227b", 46, 4608, 32, 16, 36864, 256000, 8192, 128},
    {"gemma31b", 26, 1152, 4, 1, 6912, 262144, 8192, 256},
    {"gemma34b", 34, 2560, 8, 4, 10240, 262144, 8192, 256},
    {"gemma312b", 48, 3840, 16, 8, 15360, 262144, 8192, 256},
    {"gemma327b", 62, 5376, 32, 16, 21504, 262144, 8192, 128},
    {"phi3mini", 32, 3072, 32, 32, 8192, 32064, 4096},
    {"phi3small", 32, 4096, 32, 8, 14336, 100352, 8192},
    {"phi3medium", 40, 5120, 40, 10, 17920, 32064, 4096},
    {"phi4", 40, 5120, 40, 10, 17920, 100352, 4096},
    {"olmo1b", 16, 2048, 16, 16, 8192, 50304, 2048},
    {"olmo7b", 32, 4096, 32, 32, 11008, 50304, 2048},
    {"olmo213b", 40, 5120, 40, 40, 13824, 100352, 4096},
    {"stablelm3b", 32, 2560, 32, 32, 6912, 50304, 4096},
    {"palm8b", 32, 4096, 16, 1, 10923, 256000, 2048, 256},
    {"palm62b", 64, 8192, 32, 1, 21845, 256000, 2048, 256},
    {"palm540b", 118, 18432, 48, 1, 49152, 256000, 2048, 256},
};

constexpr Sizes kBerts[] = {
    {"bertbase", 12, 768, 12, 12, 3072, 30522, 512},
    {"bertlarge", 24, 1024, 16, 16, 4096, 30522, 512},
    {"bert110m", 12, 768, 12, 12, 3072, 30522, 512},
    {"bert336m", 24, 1024, 16, 16, 4096, 30522, 512},
    {"bert340m", 24, 1024, 16, 16, 4096, 30522, 512},
    {"bert345m", 24, 1024, 16, 16, 4096, 30522, 512},
    {"bert1.3b", 24, 2048, 32, 32, 8192, 30522, 512},
    {"bert3.9b", 48, 2560, 40, 40, 10240, 30522, 512},
    {"bert4b", 48, 2560, 40, 40, 10240, 30522, 512},
    {"bert20b", 48, 6144, 96, 96, 24576, 30522, 512},
    {"bert100b", 96, 9216, 96, 96, 36864, 30522, 512},
    {"robertabase", 12, 768, 12, 12, 3072, 50265, 512},
    {"robertalarge", 24, 1024, 16, 16, 4096, 50265, 512},
};

// Encoder and decoder have `layers` blocks each.
constexpr Sizes kT5s[] = {
    {"t5small", 6, 512, 8, 8, 2048, 32128, 512},
    {"t5base", 12, 768, 12, 12, 3072, 32128, 512},
    {"t5220m", 12, 768, 12, 12, 3072, 32128, 512},
    {"t5large", 24, 1024, 16, 16, 4096, 32128, 512},
    {"t5770m", 24, 1024, 16, 16, 4096, 32128, 512},
    {"t53b", 24, 1024, 32, 32, 16384, 32128, 512, 128},
    {"t5xl", 24, 2048, 32, 32, 5120, 32128, 512},
    {"t511b", 24, 1024, 128, 128, 65536, 32128, 512, 128},
    {"t5xxl", 24, 4096, 64, 64, 10240, 32128, 512},
    {"t523b", 36, 5120, 64, 64, 10880, 32128, 512},
};

constexpr Sizes kVits[] = {
    {"vitb", 12, 768, 12, 12, 3072, 1000, 197},     {"vitl", 24, 1024, 16, 16, 4096, 1000, 197},
    {"vith", 32, 1280, 16, 16, 5120, 1000, 197},    {"vitg", 48, 1664, 16, 16, 8192, 1000, 197},
    {"vit22b", 48, 6144, 48, 48, 24576, 1000, 197},
};

Architecture dense(const Sizes& sizes, Form form) {
  Architecture model;
  model.name = sizes.name;
  model.form = form;
  model.layers = sizes.layers;
  model.hidden = sizes.hidden;
  model.heads = sizes.heads;
  model.kv_heads = sizes.kv_heads;
  model.ffn = sizes.ffn;
  model.vocab = sizes.vocab;
  model.seq = sizes.seq;
  model.head_dim = sizes.head_dim;
  return model;
}

struct Experts {
  int64_t experts, top_k, shared_ffn = 0;
};
Architecture mixture(const Sizes& sizes, const Experts& experts) {
  Architecture model = dense(sizes, Form::kMixture);
  model.experts = experts.experts;
  model.top_k = experts.top_k;
  model.shared_ffn = experts.shared_ffn;
  return model;
}

// A few dense blocks before the experts.
Architecture glm(const Sizes& sizes, const Experts& experts, int64_t dense_layers,
                 int64_t dense_ffn) {
  Architecture model = mixture(sizes, experts);
  model.dense_layers = dense_layers;
  model.dense_ffn = dense_ffn;
  return model;
}

Architecture maverick() {
  Architecture model =
      glm({"llama4maverick", 48, 5120, 40, 8, 8192, 202048, 8192}, {128, 1, 8192}, 24, 16384);
  model.remark = "experts in the last half of the blocks, not in every other one";
  return model;
}

Architecture qwen_next() {
  Architecture model =
      mixture({"qwen3next80b", 48, 2048, 16, 2, 512, 151936, 4096, 256}, {512, 10, 512});
  model.remark = "linear attention as attention";
  return model;
}

// DeepSeek-V2, V3 and those after them: a few dense blocks, shared experts, latent attention. Heads
// have 192 numbers for scores and 128 for values; the form has one size, their mean.
Architecture deepseek(const Sizes& sizes, const Experts& experts, int64_t dense_layers,
                      int64_t dense_ffn, int64_t q_rank) {
  Architecture model = mixture(sizes, experts);
  model.dense_layers = dense_layers;
  model.dense_ffn = dense_ffn;
  model.q_rank = q_rank;
  model.kv_rank = 576;  // 512 and the 64 that carry positions
  model.head_dim = 160;
  model.remark = "heads of 160 for both scores (192) and values (128)";
  return model;
}

// Nemotron 3 (2025): heads of query and key of 128, experts of squared ReLU without gates.
struct Hybrid {
  const char* pattern;
  int64_t ssm_heads, latent, mtp;
};
Architecture nemotron(const Sizes& sizes, const Experts& experts, const Hybrid& hybrid) {
  Architecture model = mixture(sizes, experts);
  model.form = Form::kHybrid;
  model.pattern = hybrid.pattern;
  model.ssm_heads = hybrid.ssm_heads;
  model.latent = hybrid.latent;
  model.mtp = hybrid.mtp;
  return model;
}

// Nemotron-H (2025): without experts.
constexpr const char* kSmallPattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
constexpr const char* kLargePattern =
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-"
    "M-M*-M-M-M-M-M*-M-M-M-M-M-";
constexpr const char* kNanoPattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
constexpr const char* kSuperPattern =
    "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME";
constexpr const char* kUltraPattern =
    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*"
    "EMEMEMEM*EMEMEMEME";

std::vector<Architecture> mixtures() {
  return {
      mixture({"mixtral8x7b", 32, 4096, 32, 8, 14336, 32000, 4096}, {8, 2}),
      mixture({"mixtral8x22b", 56, 6144, 48, 8, 16384, 32768, 4096}, {8, 2}),
      mixture({"grok1", 64, 6144, 48, 8, 32768, 131072, 8192, 128}, {8, 2}),
      mixture({"dbrx", 40, 6144, 48, 8, 10752, 100352, 4096}, {16, 4}),
      mixture({"qwen330b", 48, 2048, 32, 4, 768, 151936, 4096, 128}, {128, 8}),
      mixture({"qwen3235b", 94, 4096, 64, 4, 1536, 151936, 4096, 128}, {128, 8}),
      mixture({"qwen257ba14b", 28, 3584, 28, 4, 2560, 151936, 4096}, {64, 8, 20480}),
      mixture({"qwen1.5moea2.7b", 24, 2048, 16, 16, 1408, 151936, 4096}, {60, 4, 5632}),
      mixture({"gptoss20b", 24, 2880, 64, 8, 2880, 201088, 4096, 64}, {32, 4}),
      mixture({"gptoss120b", 36, 2880, 64, 8, 2880, 201088, 4096, 64}, {128, 4}),
      mixture({"llama4scout", 48, 5120, 40, 8, 8192, 202048, 8192}, {16, 1, 8192}),
      maverick(),
      mixture({"qwen3coder480b", 62, 6144, 96, 8, 2560, 151936, 4096, 128}, {160, 8}),
      qwen_next(),
      glm({"glm4.5", 92, 5120, 96, 8, 1536, 151552, 4096, 128}, {160, 8, 1536}, 3, 12288),
      glm({"glm4.5air", 46, 4096, 96, 8, 1408, 151552, 4096, 128}, {128, 8, 1408}, 1, 10944),
      // Sun et al. 2024
      mixture({"hunyuanlarge", 64, 6400, 80, 8, 18304, 129024, 4096}, {16, 1, 18304}),
      mixture({"phi3.5moe", 32, 4096, 32, 8, 6400, 32064, 4096}, {16, 2}),
      mixture({"olmoe", 16, 2048, 16, 16, 1024, 50304, 4096}, {64, 8}),
      mixture({"deepseekmoe16b", 28, 2048, 16, 16, 1408, 102400, 4096}, {64, 6, 2816}),
      deepseek({"deepseekv3", 61, 7168, 128, 128, 2048, 129280, 4096}, {256, 8, 2048}, 3, 18432,
               1536),
      deepseek({"deepseekr1", 61, 7168, 128, 128, 2048, 129280, 4096}, {256, 8, 2048}, 3, 18432,
               1536),
      deepseek({"kimik2", 61, 7168, 64, 64, 2048, 163840, 4096}, {384, 8, 2048}, 1, 18432, 1536),
      deepseek({"deepseekv2", 60, 5120, 128, 128, 1536, 102400, 4096}, {160, 6, 3072}, 1, 12288,
               1536),
      deepseek({"deepseekv2lite", 27, 2048, 16, 16, 1408, 102400, 4096}, {64, 6, 2816}, 1, 10944,
               0),
      deepseek({"moonlight", 27, 2048, 16, 16, 1408, 163840, 8192}, {64, 6, 2816}, 1, 11264, 0),
      nemotron({"nemotronh8b", 52, 4096, 32, 8, 21504, 131072, 8192}, {0, 0, 0},
               {kSmallPattern, 128, 0, 0}),
      nemotron({"nemotronh56b", 118, 8192, 64, 8, 32768, 131072, 8192}, {0, 0, 0},
               {kLargePattern, 256, 0, 0}),
      nemotron({"nemotron3nano", 52, 2688, 32, 2, 1856, 131072, 8192, 128}, {128, 6, 3712},
               {kNanoPattern, 64, 0, 0}),
      nemotron({"nemotron35lightning", 52, 2688, 32, 2, 1856, 131072, 8192, 128}, {128, 6, 3712},
               {kNanoPattern, 64, 0, 2}),
      nemotron({"nemotron3super", 88, 4096, 32, 2, 2688, 131072, 8192, 128}, {512, 22, 5376},
               {kSuperPattern, 128, 1024, 2}),
      nemotron({"nemotron3ultra", 108, 8192, 64, 2, 5120, 131072, 8192, 128}, {512, 22, 10240},
               {kUltraPattern, 256, 2048, 2}),
  };
}

// He et al. 2016 (table 1), as built by the usual frameworks; Liu et al. 2021 (table 1). Parameters
// and flops of an image, which the builders have too: a multiply-add is two.
std::vector<Architecture> image_networks() {
  std::vector<Architecture> all;
  const auto add = [&all](const char* name, Form form, int64_t blocks, double parameters,
                          double multiply_adds) -> Architecture& {
    Architecture& model = all.emplace_back();
    model.name = name;
    model.form = form;
    model.layers = blocks;
    model.vocab = 1000;
    model.seq = kImageSize;
    model.parameters = parameters;
    model.forward_flops = 2 * multiply_adds;
    return model;
  };
  add("resnet18", Form::kConvolution, 8, 11'689'512, 1.814e9).depth = 18;
  add("resnet34", Form::kConvolution, 16, 21'797'672, 3.664e9).depth = 34;
  add("resnet50", Form::kConvolution, 16, 25'557'032, 4.089e9).depth = 50;
  add("resnet101", Form::kConvolution, 33, 44'549'160, 7.802e9).depth = 101;
  add("resnet152", Form::kConvolution, 50, 60'192'808, 11.514e9).depth = 152;
  struct Swin {
    const char* name;
    const char* stages;
    int64_t blocks, hidden;
    double parameters, multiply_adds;
  };
  for (const Swin& size : {Swin{"swint", "2-2-6-2", 12, 96, 28.3e6, 4.5e9},
                           Swin{"swins", "2-2-18-2", 24, 96, 49.6e6, 8.7e9},
                           Swin{"swinb", "2-2-18-2", 24, 128, 87.8e6, 15.4e9},
                           Swin{"swinl", "2-2-18-2", 24, 192, 196.5e6, 34.5e9}}) {
    Architecture& model =
        add(size.name, Form::kSwin, size.blocks, size.parameters, size.multiply_adds);
    model.stages = size.stages;
    model.hidden = size.hidden;
    model.heads = model.kv_heads = size.hidden / 32;
    model.ffn = 4 * size.hidden;
    model.remark = "learned absolute positions";
  }
  return all;
}

// What each of them is, for the message.
std::vector<Architecture> unbuilt() {
  constexpr const char* kOther = "a convolutional network other than ResNet";
  constexpr const char* kDetector = "a detector, with heads over regions of images";
  constexpr const char* kRecurrent = "a recurrent network";
  constexpr const char* kGraph = "a network over graphs";
  constexpr const char* kSparse = "a recommendation model, whose embedding tables are sparse";
  constexpr const char* kSpeech = "a speech model, with convolutions over sound";
  constexpr const char* kDiffusion = "a diffusion model";
  constexpr const char* kProteins = "a model of proteins, with pairs of residues";
  constexpr const char* kState = "a state space or linear attention model of unknown blocks";
  const std::pair<const char*, const char*> names[] = {
      {"resnet", "a ResNet of another depth than 18, 34, 50, 101 and 152"},
      {"resnext", kOther},
      {"wideresnet", kOther},
      {"wresnet", kOther},
      {"wrn", kOther},
      {"swinv2", "a Swin of another kind"},
      {"mlpmixer", "a network of images without attention"},
      {"regnet", kOther},
      {"convnext", kOther},
      {"amoebanet", kOther},
      {"nasnet", kOther},
      {"vgg", kOther},
      {"alexnet", kOther},
      {"inception", kOther},
      {"googlenet", kOther},
      {"densenet", kOther},
      {"mobilenet", kOther},
      {"efficientnet", kOther},
      {"unet", kOther},
      {"3dunet", kOther},
      {"utransformer", kOther},
      {"cosmoflow", kOther},
      {"deepcam", kOther},
      {"biggan", kOther},
      {"stylegan", kOther},
      {"stablediffusion", "a convolutional network with attention (diffusion)"},
      {"sdxl", "a convolutional network with attention (diffusion)"},
      {"flux", kDiffusion},
      {"dit", kDiffusion},
      {"ditxl", kDiffusion},
      {"maskrcnn", kDetector},
      {"fasterrcnn", kDetector},
      {"ssd", kDetector},
      {"retinanet", kDetector},
      {"yolo", kDetector},
      {"dlrm", kSparse},
      {"dhen", kSparse},
      {"dcn", kSparse},
      {"dcnv2", kSparse},
      {"deepfm", kSparse},
      {"ncf", kSparse},
      {"widedeep", kSparse},
      {"lstm", kRecurrent},
      {"bilstm", kRecurrent},
      {"gnmt", kRecurrent},
      {"rnnt", kRecurrent},
      {"deepspeech", kRecurrent},
      {"tacotron", kRecurrent},
      {"gcn", kGraph},
      {"gat", kGraph},
      {"graphsage", kGraph},
      {"rgat", kGraph},
      {"rgcn", kGraph},
      {"whisper", kSpeech},
      {"wav2vec", kSpeech},
      {"hubert", kSpeech},
      {"conformer", kSpeech},
      {"alphafold", kProteins},
      {"openfold", kProteins},
      {"fastfold", kProteins},
      {"evoformer", kProteins},
      {"rwkv", kState},
      {"hyena", kState},
      {"retnet", kState},
  };
  std::vector<Architecture> all;
  for (const auto& [name, what] : names) {
    Architecture& model = all.emplace_back();
    model.name = name;
    model.form = Form::kUnbuilt;
    model.remark = what;
  }
  return all;
}

std::vector<Architecture> make_known() {
  std::vector<Architecture> all;
  for (const Sizes& sizes : kGpts) all.push_back(dense(sizes, Form::kGpt));
  for (const Sizes& sizes : kLlamas) all.push_back(dense(sizes, Form::kLlama));
  for (const Sizes& sizes : kBerts) all.push_back(dense(sizes, Form::kBert));
  for (const Sizes& sizes : kT5s) all.push_back(dense(sizes, Form::kT5));
  for (const Sizes& sizes : kVits) all.push_back(dense(sizes, Form::kVit));
  for (Architecture& model : all) {
    // Tables that the head shares with the embedding.
    model.tied = model.form != Form::kLlama || model.name.starts_with("gemma") ||
                 model.name.starts_with("commandr");
    if (model.name.starts_with("gptneox") || model.name.starts_with("pythia") ||
        model.name.starts_with("nemotron")) {
      model.tied = false;
    }
  }
  for (Architecture& model : mixtures()) all.push_back(std::move(model));
  for (Architecture& model : image_networks()) all.push_back(std::move(model));
  for (Architecture& model : unbuilt()) all.push_back(std::move(model));
  return all;
}

}  // namespace

const std::vector<Architecture>& known_architectures() {
  static const std::vector<Architecture> known = make_known();
  return known;
}

}  // namespace tessera
