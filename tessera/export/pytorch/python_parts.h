// Functions of the file that are the same for all plans. Braces are doubled where fmt fills in the
// rest.
#pragma once

namespace tessera::pytorch {

inline constexpr const char* kLocalBatch = R"(

def local_batch(mesh, *batch):
    """Returns this rank's part of the tensors of a whole step."""
    part, parts = 0, 1
    for axis in DATA_AXES:
        part, parts = part * mesh[axis].size() + mesh.get_local_rank(axis), parts * mesh[axis].size()
    return tuple(tensor.chunk(parts)[part] for tensor in batch)


def mean_over_ranks(mesh, loss):
    """Returns the mean of a number over the ranks with other parts of the batch."""
    for axis in DATA_AXES:
        dist.all_reduce(loss, group=mesh.get_group(axis))
        loss /= mesh[axis].size()
    return loss
)";

inline constexpr const char* kCutParameters = R"(

def pinned(tensor, layout):
    """Redistributes a DTensor. Sums are completed here in both passes, and not at some later op."""
    partial = any(placement.is_partial() for placement in tensor.placements)
    tensor = tensor.redistribute(placements=layout)
    return DTensor.from_local(tensor.to_local(), tensor.device_mesh, layout) if partial else tensor


def cut_parameters(model, mesh):
    """Makes DTensors of all parameters and buffers."""
    made = {}  # tied parameters stay one
    for path, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in made:
                layout = [CUT.get(f"{path}.{name}".lstrip("."), Replicate())]
                piece = distribute_tensor(parameter.detach(), mesh, layout)
                made[parameter] = torch.nn.Parameter(piece, parameter.requires_grad)
            module.register_parameter(name, made[parameter])
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = distribute_tensor(buffer, mesh, [Replicate()])
)";

inline constexpr const char* kLayOut = R"(

def lay_out(model, mesh):
    """Cuts the parameters, and fixes the layouts at the modules' borders.

    Activations between are DTensors too, so that modules see whole sizes (of heads, of sequences).
    """
    cut_parameters(model, mesh)

    def as_dtensors(module, args):
        is_real = [isinstance(arg, torch.Tensor) and arg.is_floating_point() for arg in args]
        return tuple(
            DTensor.from_local(arg, mesh, [Replicate()]) if real else arg for arg, real in zip(args, is_real)
        )

    def on_enter(layout):
        def hook(module, args):
            return tuple(pinned(arg, layout) if isinstance(arg, DTensor) else arg for arg in args)

        return hook

    def on_leave(layout):
        return lambda module, args, output: pinned(output, layout)

    model.register_forward_pre_hook(as_dtensors)
    for path, placement in ENTERS.items():
        model.get_submodule(path).register_forward_pre_hook(on_enter([placement]))
    for path, placement in LEAVES.items():
        model.get_submodule(path).register_forward_hook(on_leave([placement]))
)";

inline constexpr const char* kRemake = R"(

def remake(model):
    """Has the modules of REMADE computed again in the backward pass, which then needs only their input."""
    for path in REMADE:
        module = model.get_submodule(path)
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
)";

inline constexpr const char* kShardModel = R"(

def shard(model, mesh, **options):
    """Shards the units, and what they leave of the model."""
    options.update(mesh=mesh, reshard_after_forward=RESHARD_AFTER_FORWARD, mp_policy=PRECISION)
    for path in UNITS:
        fully_shard(model.get_submodule(path), **options)
    return fully_shard(model, **options)
)";

inline constexpr const char* kShardStage = R"(

def shard(stage, mesh, **options):
    """Shards a stage, which is gathered at once."""
    return fully_shard(stage, mesh=mesh, reshard_after_forward=RESHARD_AFTER_FORWARD, mp_policy=PRECISION, **options)
)";

// A step. To fill in: the context of a pass, what is said before it, the loss as a plain tensor.
inline constexpr const char* kSync = R"(
        last = number + 1 == MICRO_BATCHES
        model.set_requires_gradient_sync(SYNC_EVERY or last)
        model.set_reshard_after_backward(RESHARD_AFTER_FORWARD is not False or last))";

inline constexpr const char* kStep = R"(

def train_step(model, mesh, *batch):
    """Computes the gradients of a step from this rank's part of the batch. Returns the mean loss of all ranks.

    The loss of a micro-batch is the mean over its elements; all micro-batches must have as many.
    """
    total = 0.0
    pieces = zip(*(tensor.chunk(MICRO_BATCHES) for tensor in batch))
    for number, piece in enumerate(pieces):{1}
        with {0}:
            loss = model(*piece) / MICRO_BATCHES
            loss.backward()
        total = total + {2}
    return mean_over_ranks(mesh, total)
)";

// How a node of the traced model is added to a graph: as it is, or with what happens at the borders of
// its modules.
inline constexpr const char* kCopyNode = R"(

def modules_around(node):
    """The paths of the modules that are called around a node, the outermost first."""
    return [path for path, _ in node.meta.get("nn_module_stack", {}).values()]


def copy_node(graph, node, copies):
    """Adds a node of the traced model to a graph."""
    copies[node] = graph.node_copy(node, lambda source: copies[source])
)";
inline constexpr const char* kCopyLaidOutNode = R"(

def modules_around(node):
    """The paths of the modules that are called around a node, the outermost first."""
    return [path for path, _ in node.meta.get("nn_module_stack", {}).values()]


def lay(tensor, dim):
    """Redistributes a DTensor: in pieces of a dim, or whole."""
    return pinned(tensor, [Replicate() if dim is None else Shard(dim)]) if isinstance(tensor, DTensor) else tensor


def copy_node(graph, node, copies):
    """Adds a node of the traced model to a graph, with the redistributions at the borders of its modules."""

    def entered(source):
        value = copies[source]
        for path in modules_around(node):
            if path in ENTERS and source.op != "get_attr" and path not in modules_around(source):
                value = graph.call_function(lay, (value, getattr(ENTERS[path], "dim", None)))
        return value

    copies[node] = graph.node_copy(node, entered)
    for path in modules_around(node):
        if path in LEAVES and any(path not in modules_around(user) for user in node.users):
            copies[node] = graph.call_function(lay, (copies[node], getattr(LEAVES[path], "dim", None)))


class AsDTensor(torch.nn.Module):
    """Makes a DTensor of an activation that is the same on all tensor ranks."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh

    def forward(self, tensor):
        return DTensor.from_local(tensor, self.mesh, [Replicate()]) if tensor.is_floating_point() else tensor


def without_checks(traced):
    """Takes the checks of dtypes and devices out of a traced model, for which DTensor has no rule."""
    for part in [module for module in traced.modules() if isinstance(module, torch.fx.GraphModule)]:
        for check in part.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
            part.graph.erase_node(check)
        part.recompile()
    return traced


def as_plain(tensor):
    """Makes an activation of a DTensor that is the same on all tensor ranks."""
    return lay(tensor, None).to_local() if isinstance(tensor, DTensor) else tensor
)";

inline constexpr const char* kCopyNodes = R"(

def copy_nodes(traced, graph, nodes, copies):
    """Adds nodes of the traced model to a graph."""
    for node in nodes:
        copy_node(graph, node, copies)
)";
inline constexpr const char* kCopyRemadeNodes = R"(

class Remade(torch.nn.Module):
    """A part of the graph that the backward pass computes again, from what the part reads."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, *values):
        return checkpoint(self.part, *values, use_reentrant=False)


def copy_nodes(traced, graph, nodes, copies):
    """Adds nodes of the traced model to a graph; those of a module of REMADE as one call."""
    parts = {}
    for node in nodes:
        path = next((path for path in modules_around(node) if path in REMADE), None)
        parts.setdefault(path or node, []).append(node)
    for path, members in parts.items():
        if path is members[0]:
            copy_node(graph, path, copies)
            continue
        part, own = torch.fx.Graph(), {}
        reads = dict.fromkeys(source for node in members for source in node.all_input_nodes if source not in members)
        makes = [node for node in members if any(user not in members for user in node.users)]
        for node in reads:
            own[node] = part.placeholder(node.name)
        for node in members:
            copy_node(part, node, own)
        part.output(tuple(own[node] for node in makes))
        name = "remade_" + path.replace(".", "_")
        traced.add_module(name, Remade(torch.fx.GraphModule(torch.nn.Module(), part)))
        values = graph.call_module(name, tuple(copies[node] for node in reads))
        for index, node in enumerate(makes):
            copies[node] = graph.call_function(operator.getitem, (values, index))
)";

// To fill in: what else is to be known, and how activations enter a stage and leave it.
inline constexpr const char* kCutIntoStages = R"(

def cut_into_stages(model, example{0}):
    """Traces the model and cuts it before the first op of each module of STAGE_STARTS.

    Yields each stage as a module with the model's own parameter names, and what enters and leaves it. A value goes
    through all stages up to the last one that reads it.
    """
    traced = {1}torch.export.export(model, example).module(check_guards=False){5}
    nodes = list(traced.graph.nodes)
    output = next(node for node in nodes if node.op == "output")
    stage_of, trained, stage = {{}}, {{}}, 0
    for node in nodes:
        around = modules_around(node)
        while stage < len(STAGE_STARTS) and STAGE_STARTS[stage] in around:
            stage += 1
        if node.op == "get_attr":
            owner, _, name = node.target.rpartition(".")
            trained[node] = isinstance(getattr(traced.get_submodule(owner), name), torch.nn.Parameter)
        elif node is not output:
            stage_of[node] = 0 if node.op == "placeholder" else stage
            value = node.meta.get("val")
            plain = isinstance(value, torch.Tensor) and not value.is_floating_point()
            trained[node] = not plain and any(trained[source] for source in node.all_input_nodes)
    last = {{node: max((stage_of.get(user, stage) for user in node.users), default=0) for node in stage_of}}

    def like(node):
        value = node.meta["val"]
        return torch.empty(value.shape, dtype=value.dtype, device="meta", requires_grad=trained[node])

    for number in range(stage + 1):
        graph, copies = torch.fx.Graph(), {{}}
        enters = [node for node in stage_of if stage_of[node] < number <= last[node]]
        enters = [node for node in nodes if node.op == "placeholder"] if number == 0 else enters
        leaves = [node for node in stage_of if stage_of[node] <= number < last[node]]
        for node in enters:
            copies[node] = graph.placeholder(node.name){2}
        for node in nodes:
            if node.op == "get_attr" and any(stage_of.get(user) == number for user in node.users):
                copies[node] = graph.node_copy(node)
        copy_nodes(traced, graph, [node for node in nodes if stage_of.get(node) == number and node not in copies], copies)
        if number < stage:
            graph.output(tuple(graph.call_method("contiguous", ({3}copies[node]{4},)) for node in leaves))
            made = tuple(like(node) for node in leaves)
        else:  # the loss, as a vector, so that those of micro-batches can be joined
            graph.output(graph.call_method("reshape", ({3}copies[output.args[0][0]]{4}, (1,))))
            made = torch.empty(1, dtype=output.args[0][0].meta["val"].dtype, device="meta", requires_grad=True)
        yield torch.fx.GraphModule(traced, graph), tuple(like(node) for node in enters), made


class Stages(torch.nn.Module):
    """This rank's stages, and the schedule in which they run."""

    def __init__(self, modules, schedule, tied):
        super().__init__()
        self.modules_of_rank = torch.nn.ModuleList(modules)
        self.schedule = schedule
        self.tied = tied  # parameters with several names: the names, and the parameter's shape
)";

// To fill in: the stage axis; what is done to a stage, and what it becomes; the schedule and its stages;
// what else the cut is to know; the context of a pass; how a tied parameter is cut, that its names are cut alike, and its gradients.
inline constexpr const char* kParallelizeStages = R"(

def parallelize(model, mesh, *batch):
    """Makes this rank's stages. `batch`: tensors like those of a rank's part of a step."""
    names = {{}}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    tied = [(alike, parameter.detach().to("meta")) for parameter, alike in names.items() if len(alike) > 1]
{8}    example = tuple(tensor.chunk(MICRO_BATCHES)[0] for tensor in batch)
    rank, ranks = mesh.get_local_rank("{0}"), mesh["{0}"].size()
    stages, parts = [], []
    for number, (stage, enters, leaves) in enumerate(cut_into_stages(model, example{4})):
        if number % ranks != rank:
            continue{6}
        stages.append({1})
        about = {{"input_args": enters, "output_args": leaves, "group": mesh.get_group("{0}")}}
        parts.append(PipelineStage(stages[-1], number, len(STAGE_STARTS) + 1, batch[0].device, **about))
    schedule = {2}({3}, MICRO_BATCHES, loss_fn=lambda output, target: output.sum())
    return Stages(stages, schedule, tied)


def sum_tied(model, mesh):
    """Adds up the gradients of a parameter that several stages use."""
    own = {{name: value for stage in model.modules_of_rank for name, value in stage.named_parameters()}}
    for names, parameter in model.tied:
        here = [own[name] for name in names if name in own]
        local = [value.grad for value in here]{9}
        local = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in local]
        if not local:
{7}            pieces = parameter.chunk(mesh[DATA_AXES[-1]].size()) if DATA_AXES else (parameter,)
            piece = pieces[mesh.get_local_rank(DATA_AXES[-1])] if DATA_AXES else parameter
            local = [torch.zeros_like(piece, device=mesh.device_type)]
        total = sum(local)
        dist.all_reduce(total, group=mesh.get_group("{0}"))
        for gradient in local:
            gradient.copy_(total)


def train_step(model, mesh, *batch):
    """Computes the gradients of a step from this rank's part of the batch. Returns the mean loss of all ranks.

    The loss of a micro-batch is the mean over its elements; all micro-batches must have as many.
    """
    group, losses = mesh.get_group("{0}"), []
    first, last = mesh.get_local_rank("{0}") == 0, mesh.get_local_rank("{0}") == mesh["{0}"].size() - 1
    inputs = batch if first else ()
    targets = {{"target": batch[0].new_zeros(MICRO_BATCHES), "losses": losses}} if last else {{}}
    with {5}:
        model.schedule.step(*inputs, **targets)  # divides gradients by the number of micro-batches
    sum_tied(model, mesh)
    loss = torch.stack(losses).double().mean().detach() if last else torch.zeros((), dtype=torch.float64)
    loss = loss.to(batch[0].device)
    dist.broadcast(loss, dist.get_global_rank(group, mesh["{0}"].size() - 1), group=group)
    return mean_over_ranks(mesh, loss)
)";

}  // namespace tessera::pytorch
