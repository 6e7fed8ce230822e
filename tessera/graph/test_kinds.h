// Cases of the op kinds for kinds_test.cc: what a call infers.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/attributes.h"
#include "tessera/graph/graph.h"

namespace tessera {

// Operands are written "batch=2 h=3" or "bfloat16 batch=2 h=3"; float32 if no dtype is said.
struct KindCase {
  std::string kind;
  std::vector<std::string> inputs;
  Attributes attributes;
  std::string annotation;            // expected, or the error
  std::vector<std::string> outputs;  // expected "dtype [dims]"; empty for an error
};

// Convolutions, pools and batch norms: calls that are right, and calls that are not.
inline std::vector<KindCase> vision_cases() {
  const std::string x = "b=2 s=3 c=4 y=9 x=8", dy = "b=2 s=3 o=5 y=5 x=4";
  const std::string two = "y~3/2/1 x~3/2/1";
  const std::string stats = "b=2 c=4", frozen = "b s^ c y^ x^", over = "s y x";
  const Attributes stride = {{"stride", "2"}, {"padding", "1"}};
  const Attributes pool = {{"kernel", "3"}, {"stride", "2"}, {"padding", "1"}};
  const auto with = [](Attributes attributes, const Attributes& more) {
    for (const auto& [name, value] : more) attributes[name] = value;
    return attributes;
  };
  return {
      {"conv",
       {x, "o=5 c=4 kh=3 kw=3"},
       stride,
       "b s c+ " + two + ", o c 3 3 -> b s o y x",
       {"float32 [b=2, s=3, o=5, y=5, x=4]"}},
      // one element a window: spatial dims like others
      {"conv",
       {"b=2 in=4 z=2 y=3 x=3", "o=5 c=4 kz=2 ky=1 kx=1"},
       {{"padding", "1 0 0"}},
       "b c+ z~2/1/1 y x, o c 2 1 1 -> b o z y x",
       {"float32 [b=2, o=5, z=3, y=3, x=3]"}},
      {"conv_transpose",
       {dy, "o=5 c=4 kh=3 kw=3"},
       with(stride, {{"dims", "y=9 x=8"}, {"channels", "in"}}),
       "b s o+ y~-3/2/1 x~-3/2/1, o c 3 3 -> b s c y x",
       {"float32 [b=2, s=3, in=4, y=9, x=8]"}},
      {"conv_input_grad",
       {dy, "o=5 c=4 kh=3 kw=3"},
       with(stride, {{"dims", "y=9 x=8"}, {"channels", "in"}}),
       "b s o+ y~-3/2/1 x~-3/2/1, o c 3 3 -> b s c y x",
       {"float32 [b=2, s=3, in=4, y=9, x=8]"}},
      {"conv_weight_grad",
       {dy, x},
       with(stride, {{"kernel", "kh=3 kw=3"}, {"filters", "o"}, {"channels", "c"}}),
       "b+ s+ o y+ x+, b s c y~3/2/1 x~3/2/1 -> o c 3 3",
       {"float32 [o=5, c=4, kh=3, kw=3]"}},
      {"max_pool",
       {x},
       pool,
       "b s c " + two + " -> b s c y x",
       {"float32 [b=2, s=3, c=4, y=5, x=4]"}},
      {"max_pool_grad",
       {"b=2 s=3 c=4 y=5 x=4", x},
       pool,
       "b s c y~-3/2/1 x~-3/2/1, b s c y~~3/2/1 x~~3/2/1 -> b s c y x",
       {"float32 [b=2, s=3, c=4, y=9, x=8]"}},
      {"avg_pool",
       {"b=2 z=4 y=9 x=8"},
       {{"kernel", "1 3 3"}, {"stride", "1 2 2"}, {"padding", "0 1 1"}},
       "b z " + two + " -> b z y x",
       {"float32 [b=2, z=4, y=5, x=4]"}},
      {"sum_pool",
       {x},
       pool,
       "b s c " + two + " -> b s c y x",
       {"float32 [b=2, s=3, c=4, y=5, x=4]"}},
      {"avg_pool_grad",
       {"b=2 s=3 c=4 y=5 x=4"},
       with(pool, {{"dims", "y=9 x=8"}}),
       "b s c y~-3/2/1 x~-3/2/1 -> b s c y x",
       {"float32 [b=2, s=3, c=4, y=9, x=8]"}},
      {"batch_norm",
       {"bfloat16 " + x, "bfloat16 c=4", "bfloat16 c=4"},
       {{"dims", over}},
       frozen + ", c, c -> b s c y x, b c, b c",
       {"bfloat16 [b=2, s=3, c=4, y=9, x=8]", "float32 [b=2, c=4]", "float32 [b=2, c=4]"}},
      {"batch_norm",
       {x, "c=4", "c=4", "c=4", "float64 c=4"},
       {{"dims", over}},
       frozen + ", c, c, c, c -> b s c y x, b c, b c",
       {"float32 [b=2, s=3, c=4, y=9, x=8]", "float32 [b=2, c=4]", "float32 [b=2, c=4]"}},
      {"batch_norm_grad",
       {x, x, "c=4", stats, stats},
       {{"dims", over}},
       "b+ s^ c y^ x^, b s c y x, c, b c, b c -> b s c y x, c, c",
       {"float32 [b=2, s=3, c=4, y=9, x=8]", "float32 [c=4]", "float32 [c=4]"}},
      {"batch_moments",
       {x},
       {{"dims", over}},
       "b s+ c y+ x+ -> b c moments^ {moments}",
       {"float32 [b=2, c=4, moments=3]"}},
      {"batch_apply",
       {x, stats, stats, "c=4", "c=4"},
       {{"dims", over}},
       "b s c y x, b c, b c, c, c -> b s c y x",
       {"float32 [b=2, s=3, c=4, y=9, x=8]"}},
      {"batch_grad_sums",
       {x, x, stats, stats},
       {{"dims", over}},
       "b s+ c y+ x+, b s c y x, b c, b c -> b c sums^",
       {"float32 [b=2, c=4, sums=2]"}},
      {"batch_grad_apply",
       {x, x, "c=4", stats, stats, "b=2 c=4 sums=2"},
       {{"dims", over}, {"count", 216}},
       "b s c y x, b s c y x, c, b c, b c, b c sums^ -> b s c y x",
       {"float32 [b=2, s=3, c=4, y=9, x=8]"}},
      {"batch_grad_params",
       {x, x, stats, stats},
       {{"dims", over}, {"channel", "c"}},
       "b+ s+ c y+ x+, b s c y x, b c, b c -> c, c",
       {"float32 [c=4]", "float32 [c=4]"}},
  };
}

// State space: the scan and the convolution before it.
inline std::vector<KindCase> state_space_cases() {
  const std::string x = "b=2 s=6 n=3 r=2 p=4", dt = "b=2 s=6 n=3 r=2", a = "n=3 r=2",
                    keys = "b=2 s=6 n=3 k=5";
  const std::string operands =
      "batch seq^ heads group head_dim, batch seq heads group, heads group, batch seq heads "
      "state^, batch seq heads state, heads group -> ";
  const std::string reduced =
      "batch+ seq^ heads group+ head_dim+, batch seq heads group head_dim, batch seq heads group, "
      "heads group, batch seq heads state^, batch seq heads state, heads group -> ";
  return {
      {"state_scan",
       {x, dt, a, keys, keys, a},
       {},
       operands + "batch seq heads group head_dim",
       {"float32 [b=2, s=6, n=3, r=2, p=4]"}},
      {"state_scan_grad",
       {x, x, dt, a, keys, keys, a},
       {{"chunk", 2}},
       reduced +
           "batch seq heads group head_dim, batch seq heads group, heads group, batch seq heads "
           "state, batch seq heads state, heads group",
       {"float32 [b=2, s=6, n=3, r=2, p=4]", "float32 [b=2, s=6, n=3, r=2]", "float32 [n=3, r=2]",
        "float32 [b=2, s=6, n=3, k=5]", "float32 [b=2, s=6, n=3, k=5]", "float32 [n=3, r=2]"}},
      {"causal_conv",
       {"b=2 s=6 n=3 p=4", "n=3 p=4 w=4", "n=3 p=4"},
       {},
       "b s^ n p, n p 4, n p -> b s n p",
       {"float32 [b=2, s=6, n=3, p=4]"}},
      {"causal_conv_grad",
       {"s=6 n=3", "s=6 n=3", "n=3 w=4"},
       {},
       "s^ n, s n, n 4 -> s n, n 4, n",
       {"float32 [s=6, n=3]", "float32 [n=3, w=4]", "float32 [n=3]"}},
      {"softplus", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"relu2", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"relu2_grad", {"a=2", "a=2"}, {}, "a, a -> a", {"float32 [a=2]"}},
  };
}

// Kinds of imported models: element-wise functions, masks, indices.
inline std::vector<KindCase> imported_cases() {
  const std::string x = "batch=2 seq=3 h=4", whole = "float32 [batch=2, seq=3, h=4]";
  return {
      {"div", {x, "seq=3 h=4"}, {}, "batch seq h, seq h -> batch seq h", {whole}},
      {"log", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"sqrt", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"cos", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"sin", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"in_evaluation", {x, "seq=3"}, {}, "batch seq h, seq -> batch seq h", {whole}},
      {"carry", {"float64 a=2", "a=2"}, {{"keep", 0.9}}, "a, a -> a", {"float64 [a=2]"}},
      {"power", {"a=2"}, {{"exponent", 3}}, "a -> a", {"float32 [a=2]"}},
      {"clamp", {"a=2"}, {{"min", 0}}, "a -> a", {"float32 [a=2]"}},
      {"clamp_grad", {"a=2", "a=2"}, {{"max", 1.5}}, "a, a -> a", {"float32 [a=2]"}},
      {"leaky_relu", {"a=2"}, {}, "a -> a", {"float32 [a=2]"}},
      {"leaky_relu_grad", {"a=2", "a=2"}, {}, "a, a -> a", {"float32 [a=2]"}},
      {"where", {"bool seq=3", x, "h=4"}, {}, "seq, batch seq h, h -> batch seq h", {whole}},
      {"where",
       {"int64 batch=2 seq=3", "batch=2"},
       {{"otherwise", -1}},
       "batch seq, batch -> batch seq",
       {"float32 [batch=2, seq=3]"}},
      {"pad",
       {"a=2 b=3"},
       {{"dim", "a"}, {"begin", 1}, {"size", 5}, {"value", 2}},
       "a^ b -> a.out^ b",
       {"float32 [a=5, b=3]"}},
      {"gather",
       {x, "int64 batch=2 k=5"},
       {{"dim", "seq"}},
       "batch seq+ h, batch k -> batch k h",
       {"float32 [batch=2, k=5, h=4]"}},
      {"gather",
       {x, "int64 k=5 l=2"},
       {{"dim", "h"}},
       "batch seq h+, k l -> batch seq k l",
       {"float32 [batch=2, seq=3, k=5, l=2]"}},
      {"scatter_add",
       {"batch=2 k=5 h=4", "int64 batch=2 k=5"},
       {{"dim", "seq"}, {"dims", "batch=2 seq=3 h=4"}},
       "batch k+ h, batch k -> batch seq h",
       {whole}},
      {"cumsum", {x}, {{"dim", "seq"}}, "batch seq^ h -> batch seq h", {whole}},
  };
}

inline std::vector<KindCase> imported_errors() {
  return {
      {"where",
       {"bool seq=3", "h=4"},
       {},
       "expected the dims of each input among those of the largest in the same order, found 'x1' "
       "[h=4] float32 and 'x0' [seq=3] bool",
       {}},
      {"where",
       {"bool h=4", "h=4", "bfloat16 h=4"},
       {},
       "expected values of one floating dtype, found 'x1' [h=4] float32 and 'x2' [h=4] bfloat16",
       {}},
      {"clamp", {"a=2"}, {{"min", 2}, {"max", 1}}, "expected min <= max, found 2 and 1", {}},
      {"gather",
       {"a=2 b=3", "int64 b=3"},
       {{"dim", "b"}},
       "expected ids with dims of [a=2, b=3] of the same sizes, without 'b', or with new ones, "
       "found 'x1' [b=3] int64",
       {}},
      {"gather",
       {"a=2 b=3", "k=3"},
       {{"dim", "b"}},
       "expected ids of dtype int64, found 'x1' [k=3] float32",
       {}},
      {"scatter_add",
       {"a=2 k=5", "int64 k=5"},
       {{"dim", "b"}, {"dims", "b=3 a=2"}},
       "expected x of dims [k=5, a=2], found 'x0' [a=2, k=5] float32",
       {}},
      {"cumsum",
       {"a=2"},
       {{"dim", "b"}},
       "expected a dim of the input, found 'b' for 'x0' [a=2] float32",
       {}},
  };
}

inline std::vector<KindCase> state_space_errors() {
  const std::string x = "b=2 s=6 n=3 r=2 p=4", dt = "b=2 s=6 n=3 r=2", a = "n=3 r=2",
                    keys = "b=2 s=6 n=3 k=5";
  return {
      {"state_scan",
       {x, dt, a, "b=2 s=6 n=2 k=5", keys, a},
       {},
       "expected B with dims (batch seq heads state) of x 'x0' [b=2, s=6, n=3, r=2, p=4] float32, "
       "found 'x3' [b=2, s=6, n=2, k=5] float32",
       {}},
      {"state_scan",
       {dt, dt, a, keys, keys, a},
       {},
       "expected x with dims (batch seq heads group head_dim), found 'x0' [b=2, s=6, n=3, r=2] "
       "float32",
       {}},
      {"state_scan",
       {x, dt, a, keys, keys, a},
       {{"chunk", 0}},
       "expected chunk of at least 1, found 0",
       {}},
      {"causal_conv",
       {"b=2 s=6 n=3", "n=4 w=4", "n=4"},
       {},
       "expected x with a sequence and the channels of w as its last dims, found 'x0' [b=2, s=6, "
       "n=3] float32 for w 'x1' [n=4, w=4] float32",
       {}},
  };
}

inline std::vector<KindCase> vision_errors() {
  const std::string x = "b=2 c=4 y=9 x=8";
  return {
      {"conv",
       {x, "o=5 c=3 kh=3 kw=3"},
       {},
       "expected x with 3 channels, found 'x0' [b=2, c=4, y=9, x=8] float32",
       {}},
      {"conv",
       {x, "o=5 c=4 k=3"},
       {},
       "expected a weight with the dims out, in and 2 or 3 of the kernel, found 'x1' [o=5, c=4, "
       "k=3] float32",
       {}},
      {"conv",
       {"c=4 y=9 x=8", "o=5 c=4 kh=3 kw=3"},
       {},
       "expected x with batch, channels and 2 spatial dims, found 'x0' [c=4, y=9, x=8] float32",
       {}},
      {"conv",
       {x, "o=5 c=4 kh=3 kw=3"},
       {{"stride", "0"}},
       "expected stride of at least 1, found \"0\"",
       {}},
      {"conv",
       {x, "o=5 c=4 kh=3 kw=3"},
       {{"padding", "1 1 1"}},
       "expected padding with 1 or 2 numbers, found \"1 1 1\"",
       {}},
      {"max_pool",
       {x},
       {{"kernel", "10"}},
       "expected a window that fits dim 'y' of 9, found kernel 10 with padding 0",
       {}},
      {"conv_input_grad",
       {"b=2 o=5 y=4 x=4", "o=5 c=4 kh=3 kw=3"},
       {{"dims", "y=9 x=8"}, {"channels", "c"}},
       "expected dy with the positions [y=7, x=6], found 'x0' [b=2, o=5, y=4, x=4] float32",
       {}},
      {"conv_weight_grad",
       {"b=3 o=5 y=7 x=6", x},
       {{"kernel", "kh=3 kw=3"}, {"filters", "o"}, {"channels", "c"}},
       "expected dy with the batch dims of x, found 'x0' [b=3, o=5, y=7, x=6] float32 for 'x1' "
       "[b=2, c=4, y=9, x=8] float32",
       {}},
      {"batch_norm",
       {x, "c=4", "c=4"},
       {{"dims", "b rows"}},
       "expected dims of x, each once, found \"b rows\" for 'x0' [b=2, c=4, y=9, x=8] float32",
       {}},
      {"batch_norm",
       {x, "c=4", "c=4", "c=4"},
       {{"dims", "b y x"}},
       "expected a running mean and a running variance, found one of them",
       {}},
      {"batch_norm",
       {x, "b=2", "b=2"},
       {{"dims", "b y x"}},
       "expected gamma with one of the dims [c=4], found 'x1' [b=2] float32",
       {}},
  };
}

}  // namespace tessera
