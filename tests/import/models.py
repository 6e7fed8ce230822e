"""Modules as their authors may write them, for tests of imports. Each returns its loss."""
import copy
import functools
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class FusedBlock(nn.Module):
    """One product for queries, keys and values, and PyTorch's attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Attention(nn.Module):
    """Attention by hand: scores, a causal mask in a buffer, softmax."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (layer(x).view(b, t, self.heads, c // self.heads).transpose(1, 2) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class ManualBlock(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Transformer(nn.Module):
    """A language model; `tied`: the head reads the embedding's table."""

    def __init__(self, block, vocab=40, width=16, length=8, layers=2, tied=False):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([block() for _ in range(layers)])
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.tok.weight

    def forward(self, tokens, targets):
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class WithoutPositions(nn.Module):
    """A language model for sequences of any length, whose norms have their default eps."""

    def __init__(self, block, vocab=40, width=16, layers=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([block() for _ in range(layers)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.tok(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix1, self.mix2 = nn.Linear(tokens, 12), nn.Linear(12, tokens)
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x):
        y = self.mix2(F.relu(self.mix1(self.norm1(x).transpose(1, 2))))
        x = x + y.transpose(1, 2)
        return x + self.down(F.relu(self.up(self.norm2(x))))


class Mixer(nn.Module):
    def __init__(self, width=16, classes=10, layers=2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=4, stride=4)
        self.blocks = nn.Sequential(*[MixerBlock(4, width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images, targets):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = self.norm(self.blocks(x)).mean(dim=1)
        return F.cross_entropy(self.head(x), targets)


class Residual(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = None
        if stride != 1 or before != width:
            self.short = nn.Sequential(nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Residual(8, 8, 1), Residual(8, 8, 1))
        self.layer2 = nn.Sequential(Residual(8, 12, 2), Residual(12, 12, 1))
        self.head, self.average = nn.Linear(12, classes), nn.AdaptiveAvgPool2d(1)

    def forward(self, images, targets):
        x = self.layer2(self.layer1(self.pool(self.stem(images))))
        return F.cross_entropy(self.head(torch.flatten(self.average(x), 1)), targets)


def convolutions(before, width):
    return nn.Sequential(nn.Conv2d(before, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    """Images of one channel to classes of pixels, up by transposed convolutions and by repetition."""

    def __init__(self, classes=5):
        super().__init__()
        self.down1, self.down2, self.middle = convolutions(1, 4), convolutions(4, 6), convolutions(6, 8)
        self.up2 = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.merge2 = convolutions(12, 6)
        self.up1 = nn.Upsample(scale_factor=2, mode="nearest")
        self.merge1 = convolutions(10, 4)
        self.head = nn.Conv2d(4, classes, 1)

    def forward(self, images, targets):
        a = self.down1(images)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.up2(self.middle(F.max_pool2d(b, 2)))
        x = self.up1(self.merge2(torch.cat([x, b], dim=1)))
        return F.cross_entropy(self.head(self.merge1(torch.cat([x, a], dim=1))), targets)


class Points(nn.Module):
    """Sets of points to classes: a network of each point, and of each feature the largest and the smallest over the points."""

    def __init__(self, width=12, classes=5):
        super().__init__()
        self.inner, self.middle, self.head = nn.Linear(3, width), nn.Linear(width, width), nn.Linear(2 * width, classes)

    def forward(self, points, targets):
        # Of zeros behind a ReLU several are the smallest, which share the gradient.
        x = F.relu(self.middle(F.relu(self.inner(points))))
        return F.cross_entropy(self.head(torch.cat([x.amax(dim=1), x.amin(1, keepdim=True).squeeze(1)], dim=-1)), targets)


class GroupedBlock(nn.Module):
    """Rotary positions from a table, query heads in groups, RMS norms, a gated MLP: Llama's form."""

    def __init__(self, width, heads, groups, length):
        super().__init__()
        self.heads, self.kv, self.size = heads, heads // groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, self.kv * self.size, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 24, bias=False), nn.Linear(width, 24, bias=False), nn.Linear(24, width, bias=False)
        angles = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x):
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * self.sin

    def forward(self, x):
        b, t, c = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, t, self.heads, self.size).transpose(1, 2)
        k, v = (layer(y).view(b, t, self.kv, self.size).transpose(1, 2) for layer in (self.k, self.v))
        k, v = self.repeat(self.rotate(k)), self.repeat(v)
        y = F.scaled_dot_product_attention(self.rotate(q), k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def repeat(self, x):
        b, kv, t, d = x.shape
        return x[:, :, None, :, :].expand(b, kv, self.heads // kv, t, d).reshape(b, self.heads, t, d)


def tokens(vocab=40, length=8, batch=8):
    return (torch.randint(vocab, (batch, length)), torch.randint(vocab, (batch, length)))


def images(channels, side, classes, pixels=False, batch=8):
    shape = (batch, side, side) if pixels else (batch,)
    return (torch.randn(batch, channels, side, side), torch.randint(classes, shape))


class Vision(nn.Module):
    """PyTorch's own encoder layers behind patches and a class token."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 5, 16))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, images, targets):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return F.nll_loss(F.log_softmax(self.head(self.norm(x)[:, 0]), dim=-1), targets)


class Windows(nn.Module):
    """Attention in windows of pixels that views cut, a group norm, and a layer that is called three times."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8)
        self.qkv, self.again, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, images, targets):
        x = self.norm(self.embed(images)).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        y = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(y).reshape(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 16, c)
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        x = (x + y).mean((1, 2))
        for _ in range(3):
            x = x + torch.tanh(self.again(x))
        return F.mse_loss(self.head(x).squeeze(-1), targets)


class Padded(nn.Module):
    """A row of padding that is not trained, targets that do not count, a loss that is picked by hand."""

    def __init__(self, vocab=12, width=8):
        super().__init__()
        self.table = nn.Embedding(vocab, width, padding_idx=3)
        self.inner, self.head = nn.Linear(width, width), nn.Linear(width, vocab)

    def forward(self, tokens, targets):
        x = self.inner(self.table(tokens))
        logits = self.head(x.abs())
        flat, wanted = logits.view(-1, logits.shape[-1]), targets.view(-1)
        picked = torch.log_softmax(logits, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        rows = F.nll_loss(F.log_softmax(flat, -1), tokens.view(-1), ignore_index=5, reduction="sum")
        return F.cross_entropy(flat, wanted, ignore_index=-1) + F.cross_entropy(flat, tokens.view(-1), ignore_index=3) + 0.1 * rows - picked.mean()


class Changed(nn.Module):
    """Ops in place, of tensors and of views, whose results alone are read afterwards."""

    def __init__(self, width=8):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        y = self.inner(x)
        y += 1
        y = F.relu(y, inplace=True)
        z = self.outer(y) * 2
        z.add_(1)
        return z.view(-1).mul_(3).pow(2).mean() + y.mean()


class Precise(nn.Module):
    """Sums and a softmax in a wider dtype than their operands'."""

    def __init__(self, width=8):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        y = torch.softmax(self.inner(x), dim=-1, dtype=torch.float64).to(x.dtype)
        z = F.log_softmax(self.outer(y), dim=-1, dtype=torch.float64)
        return z.sum(-1).mean(dtype=torch.float64).to(x.dtype) + self.outer(y).sum(dim=(0, 1), dtype=torch.float64).to(x.dtype).pow(2).mean()


class Shared(nn.Module):
    """What a state_dict may hold beside what the graph has: buffers, parameters that are tied, that no op reads, that
    lie in another order, and two parts of one storage."""

    def __init__(self, width=8):
        super().__init__()
        self.turned = nn.Parameter(torch.randn(6, width).t())
        both = torch.randn(2 * width)
        self.low, self.high = nn.Parameter(both[:width]), nn.Parameter(both[width:])
        self.one, self.other = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.other.weight = self.one.weight
        self.idle, self.norm = nn.Linear(3, 5), nn.BatchNorm1d(width)
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.register_buffer("hidden", torch.ones(4, 4)[:, 1:3])
        self.register_buffer("local", torch.arange(width).float(), persistent=False)

    def forward(self, x):
        y = torch.tanh(self.norm(self.one(x)) * self.scale + self.low)
        return ((self.other(y) * self.high + self.local.to(y.dtype)) @ self.turned).pow(2).mean()


class Grouped(nn.Module):
    """Convolutions in groups, by channel and with gaps."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=2, dilation=2)
        self.groups = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.depth, self.mix = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=8, bias=False), nn.Conv2d(16, 8, 1)
        self.wide = nn.Conv2d(8, 6, (3, 2), padding=(4, 0), dilation=(4, 1), groups=2)
        self.same, self.head = nn.Conv2d(6, 6, 3, padding="same", dilation=2), nn.Linear(6, classes)
        self.up = nn.ConvTranspose2d(6, 6, 3, stride=2, padding=1, output_padding=1, groups=2)

    def forward(self, images, targets):
        x = self.mix(self.depth(F.relu(self.groups(F.relu(self.stem(images))))))
        return F.cross_entropy(self.head(torch.tanh(self.up(self.same(self.wide(x)))).mean((2, 3))), targets)


class Defaults(nn.Module):
    """Norms without a weight, a bias or an epsilon of their own."""

    def __init__(self, vocab=12, width=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.rms, self.plain_rms = nn.RMSNorm(width), nn.RMSNorm(width, elementwise_affine=False)
        self.layer, self.plain_layer = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, elementwise_affine=False)
        self.batch, self.group = nn.BatchNorm1d(width, affine=False), nn.GroupNorm(2, width, affine=False)

    def forward(self, tokens, targets):
        x = self.rms(self.embed(tokens) * 1e-3)  # so small that the epsilon counts
        x = self.layer(torch.tanh(x)) + self.plain_rms(x) * self.plain_layer(x.pow(2))
        x = x + self.group(self.batch(x.transpose(1, 2))).transpose(1, 2)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Pools(nn.Module):
    """Adaptive pools to several pixels, of maps and of an input; padding by numbers, in and out."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv, self.next, self.head = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 6, 3), nn.Linear(6 + 4, classes)

    def forward(self, images, targets):
        y = self.conv(images)
        z = F.adaptive_avg_pool2d(y, (6, 4)) + F.adaptive_max_pool2d(y, (6, 4))
        z = self.next(F.pad(z, (2, -1, 0, 3), value=0.5)).pow(2).mean((2, 3))
        small = F.pad(F.adaptive_avg_pool2d(images, (3, 2)), (1, 1, -1, 2), value=-2.0).pow(2).mean((2, 3))
        return F.cross_entropy(self.head(torch.cat([z, small], 1)), targets)


class Counted(nn.Module):
    """Integers and truths that depend on the inputs: positions of tokens that are no padding, masks, the largest token."""

    def __init__(self, vocab=12, width=8):
        super().__init__()
        self.table, self.places = nn.Embedding(vocab, width), nn.Embedding(10, width, padding_idx=1)
        self.kinds, self.inner, self.head = nn.Embedding(3, width), nn.Linear(width, width), nn.Linear(width, vocab)
        self.register_buffer("kind", torch.zeros(1, 20, dtype=torch.long), persistent=False)

    def forward(self, tokens, targets):
        real = tokens.ne(1)
        places = torch.cumsum(real.int(), 1).type_as(real.int()) * real.int() + 1
        kinds = self.kind.expand(len(tokens), -1).gather(1, places.long())
        x = self.table(tokens) + self.places(places.long()) + self.kinds(kinds)
        either = torch.logical_or(real, ~tokens.eq(targets)) & (tokens == tokens)
        y = F.scaled_dot_product_attention(*(self.inner(x)[:, None],) * 3, attn_mask=either[:, None, None, :].expand(-1, 1, 6, -1))
        x = x + y[:, 0] * real.unsqueeze(-1)
        largest = x[torch.arange(len(tokens)), tokens.int().argmax(dim=-1)]
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten()) + F.cross_entropy(self.head(largest), targets[:, 0])


class Written(nn.Module):
    """Labels shifted in place, as encoder-decoders shift them, and other writes through parts of tensors."""

    def __init__(self, vocab=12, width=8):
        super().__init__()
        self.table, self.inner, self.head = nn.Embedding(vocab, width), nn.Linear(width, width), nn.Linear(width, vocab)

    def forward(self, tokens, targets):
        shifted = targets.new_zeros(targets.shape)
        shifted[:, 1:] = targets[:, :-1].clone()
        shifted[:, 0] = 2
        shifted.masked_fill_(shifted == 5, 3)
        x = self.inner(self.table(shifted) + self.table(tokens))
        x[:, 1:3].mul_(2)
        x[:, 0, 2:5] = x[:, 1, 2:5] + 1
        x[..., -1].fill_(0.5)
        mask = torch.zeros(6)
        mask[2:4] = 1.0
        return F.cross_entropy(self.head(torch.tanh(x) * mask[:, None]).flatten(0, 1), targets.flatten())


class Sound(nn.Module):
    """Convolutions along one dim, of a weight that is normed, every second number, and ops of products and norms."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.first, self.head = nn.Conv1d(1, width, 5, stride=2), nn.Linear(width, classes)
        self.groups = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 4, padding=2, groups=2), dim=2)

    def forward(self, waves, targets):
        x = self.groups(F.gelu(self.first(waves.unsqueeze(1))))[:, :, :-1].transpose(1, 2)
        x = torch.cat([-x[..., 1::2], x[..., ::2]], -1)
        scores = torch.baddbmm(torch.ones(1, 1, x.shape[1]).to(x), x, x.transpose(1, 2), beta=0.5, alpha=0.25)
        scores = scores - scores.max(dim=-1, keepdim=True).values.detach() + F.logsigmoid(scores)
        most, place = x.max(dim=1)
        x = torch.softmax(scores, -1) @ x + (place.to(x.dtype) * 0.01).unsqueeze(1)
        x = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        mixed = torch.einsum("bsc, btc, td -> bd", x, torch.tanh(x), self.head.weight.new_ones(x.shape[1], x.shape[2]))
        return F.cross_entropy(self.head(x.mean(1) + most + 0.1 * mixed), targets) + torch.einsum("ij,jk", most, self.head.weight.T).pow(2).mean()


class GroupedInput(nn.Module):
    """A convolution in groups of the input itself."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv, self.head = nn.Conv2d(4, 8, 3, groups=2, dilation=2), nn.Linear(8, classes)

    def forward(self, im, t):
        return F.cross_entropy(self.head(self.conv(im).mean((2, 3))), t)


class Classifier(nn.Module):
    """A model of transformers for images, with a loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, targets):
        return F.cross_entropy(self.model(pixel_values=images).logits, targets)


class LanguageModel(nn.Module):
    """A model of transformers with a loss. By default its attention appends to a cache, which is empty."""

    def __init__(self, model, **arguments):
        super().__init__()
        self.model, self.arguments = model, arguments

    def forward(self, tokens, targets):
        logits = self.model(input_ids=tokens, **self.arguments).logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Labelled(nn.Module):
    """A model of transformers with the loss of its own, of the labels one token on."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, labels):
        return self.model(input_ids=tokens, labels=labels).loss


def transformers_cases():
    """The same of transformers, with random weights; none where that library is absent."""
    try:
        import transformers
    except ImportError as error:
        print(f"models of transformers: skipped: {error}", file=sys.stderr)
        return {}
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    gpt2 = transformers.GPT2Config(vocab_size=40, n_positions=8, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0)
    small = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=16, initializer_range=0.1)
    llama = transformers.LlamaConfig(**small)
    mistral = transformers.MistralConfig(**small, sliding_window=None)
    qwen2 = transformers.Qwen2Config(**small, tie_word_embeddings=True)
    qwen3 = transformers.Qwen3Config(**small, head_dim=4)
    vit = transformers.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=8, patch_size=4,
                                 num_labels=10, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    phi3 = transformers.Phi3Config(**small, partial_rotary_factor=0.5, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    olmo2 = transformers.Olmo2Config(**small, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    plans = ["fsdp(dp=4)", "megatron(tp=2,dp=2)"]
    return {
        "olmo2": (LanguageModel(transformers.Olmo2ForCausalLM(olmo2), use_cache=False), tokens(), plans, "float32"),
        "cached": (LanguageModel(transformers.LlamaForCausalLM(llama)), tokens(), plans, "float32 inside float64"),
        "labelled": (Labelled(transformers.LlamaForCausalLM(llama)), tokens(), plans, "float32"),
        "phi3": (LanguageModel(transformers.Phi3ForCausalLM(phi3), use_cache=False), tokens(), plans, "float32"),
        "mistral": (LanguageModel(transformers.MistralForCausalLM(mistral), use_cache=False), tokens(), plans, "float32"),
        "qwen2": (LanguageModel(transformers.Qwen2ForCausalLM(qwen2), use_cache=False), tokens(), plans, "float32"),
        "qwen3": (LanguageModel(transformers.Qwen3ForCausalLM(qwen3), use_cache=False), tokens(), plans, "float32"),
        "vit": (Classifier(transformers.ViTForImageClassification(vit)), images(3, 8, 10), plans, "float64"),
        "gpt2": (LanguageModel(transformers.GPT2LMHeadModel(gpt2), use_cache=False), tokens(), plans, "float64"),
        # Its norms compute in float32 whatever the model's dtype is.
        "llama": (LanguageModel(transformers.LlamaForCausalLM(llama), use_cache=False), tokens(), plans, "float32"),
    }


@functools.cache
def kept_cases():
    """By name: the module, its arguments, plans that it is run under, and the dtype."""
    torch.manual_seed(0)
    layers = ["fsdp(dp=4)", "megatron(tp=2,dp=2)", "gpipe(pp=2,micro_batches=2)"]
    own = {
        "fused": (Transformer(lambda: FusedBlock(16, 4), tied=True), tokens(), layers),
        "manual": (Transformer(lambda: ManualBlock(16, 4, 8)), tokens(), layers),
        "grouped": (Transformer(lambda: GroupedBlock(16, 4, 2, 8)), tokens(), layers),
        "mixer": (Mixer(), images(3, 8, 10), ["fsdp(dp=4)", "gpipe(pp=2,micro_batches=2)"]),
        "vision": (Vision(), images(3, 8, 10), ["megatron(tp=2,dp=2)"]),
        "windows": (Windows(), (torch.randn(8, 3, 8, 8), torch.randn(8)), ["fsdp(dp=4)"]),
        "resnet": (ResNet(), images(3, 16, 10), ["fsdp(dp=4)"]),
        "points": (Points(), (torch.randn(8, 6, 3), torch.randint(5, (8,))), ["fsdp(dp=4)"]),
        "unet": (UNet(), images(1, 8, 5, pixels=True), ["fsdp(dp=4)"]),
        "convolutions": (Grouped(), images(3, 8, 5), ["fsdp(dp=4)"]),
        "padded": (Padded(), (torch.randint(12, (8, 6)), torch.randint(-1, 12, (8, 6))), ["fsdp(dp=4)"]),
        "defaults": (Defaults(), (torch.randint(12, (8, 6)), torch.randint(12, (8, 6))), ["fsdp(dp=4)"]),
        "pools": (Pools(), (torch.randn(8, 4, 12, 8), torch.randint(5, (8,))), ["fsdp(dp=4)"]),
        "grouped_input": (GroupedInput(), (torch.randn(8, 4, 12, 8), torch.randint(5, (8,))), ["fsdp(dp=4)"]),
        "counted": (Counted(), (torch.randint(12, (8, 6)), torch.randint(12, (8, 6))), ["fsdp(dp=4)"]),
        "written": (Written(), (torch.randint(12, (8, 6)), torch.randint(12, (8, 6))), ["fsdp(dp=4)"]),
        "sound": (Sound(), (torch.randn(8, 40), torch.randint(5, (8,))), ["fsdp(dp=4)"]),
        "changed": (Changed(), (torch.randn(8, 8),), ["fsdp(dp=2)"]),
        "state": (Shared(), (torch.randn(8, 8),), ["fsdp(dp=2)"]),
    }
    mixed = {"precise": (Precise(), (torch.randn(8, 8),), ["fsdp(dp=2)"], "float32")}
    return {name: (*case, "float64") for name, case in own.items()} | mixed | transformers_cases()


def cases():
    """The same, for a test that changes what it gets."""
    return Cases(kept_cases())


class Cases(dict):
    def __getitem__(self, name):
        return copy.deepcopy(super().__getitem__(name))
