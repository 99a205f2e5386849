// Emulated `neuron` device for PyTorch: a PrivateUse1 backend whose "device memory" is host memory.
//
// The one idea: a neuron tensor and a CPU tensor may describe THE SAME bytes. So any operator is run by
//   1. making zero-copy CPU aliases of its neuron tensor arguments (aliases.h),
//   2. calling the CPU (or c10d/gloo) kernel on the aliases,
//   3. mapping the returned CPU tensors back: an alias becomes its neuron tensor (or a view of its storage),
//      a fresh CPU tensor is copied into new neuron memory.
// Writes (in-place, out=, collectives, even asynchronous ones) need no copy back: the bytes are shared.
// No Python or pybind header is included: Python talks to this file through torch.ops.neuron_emu.*.
#include "aliases.h"
#include "tracking.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/histc.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

namespace {

using namespace neuron_emu;
using torch::jit::Stack;

// ---------------------------------------------------------------- device guard: one synchronous stream per device
double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

DeviceIndex countable_devices() noexcept {
  try {
    return device_count();
  } catch (const c10::Error&) {  // an unreadable NEURON_RT_VISIBLE_CORES is reported by start()
    return 0;
  }
}

struct NeuronGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNeuron; }
  c10::Device getDevice() const override { return {kNeuron, current_device()}; }
  void setDevice(c10::Device d) const override {
    chosen_device = check_index(d.has_index() ? d.index() : current_device());
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.has_index()) chosen_device = d.index();
  }
  c10::Device exchangeDevice(c10::Device d) const override {
    const auto old = getDevice();
    if (d.has_index()) setDevice(d);
    return old;
  }
  DeviceIndex deviceCount() const noexcept override { return countable_devices(); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
  c10::Stream getStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d.has_index() ? d : getDevice());
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getStream(d); }
  c10::Stream getNewStream(c10::Device d, int) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return getStream(s.device()); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(DeviceIndex d) const override { check_index(d < 0 ? current_device() : d); }

  // An event is a time stamp.
  void record(void** event, const c10::Stream&, DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new double;
    *static_cast<double*>(*event) = now_ms();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<double*>(event); }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* from, void* to, DeviceIndex) const override {
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard)
REGISTER_ALLOCATOR(kNeuron, &allocator)

// ---------------------------------------------------------------- hooks: what makes it torch.accelerator
struct NeuronHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return countable_devices() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return runtime.started; }
  DeviceIndex deviceCount() const override { return device_count(); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex d) const override { chosen_device = check_index(d); }
  DeviceIndex exchangeDevice(DeviceIndex d) const override {
    const auto old = current_device();
    setCurrentDevice(d);
    return old;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return exchangeDevice(d); }
  at::Device getDeviceFromPtr(void*) const override { return {kNeuron, current_device()}; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(at::kCPU); }
  // Random numbers come from CPU kernels, so a "neuron" generator IS a CPU generator.
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  void resizePrivateUse1Bytes(const Storage& storage, size_t size) const override {
    resize_storage(storage.unsafeGetStorageImpl(), size);
  }
};

// ---------------------------------------------------------------- the boxed fallback
template <class F>
void map_tensors(c10::IValue& value, const F& f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorList()) mapped.push_back(f(tensor));
    value = mapped;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      mapped.push_back(tensor ? std::optional(f(*tensor)) : tensor);
    value = mapped;
  } else if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isTensorList()) {
    c10::List<std::vector<at::Tensor>> mapped;  // Tensor[][], in c10d
    for (const auto& element : value.toListRef()) {
      c10::IValue inner = element;
      map_tensors(inner, f);
      mapped.push_back(inner.toTensorVector());
    }
    value = mapped;
  }
}

// Refuses an operator whose tensors live on different devices (as CUDA does; assumed of Neuron), or a script that forgets
// a .to("neuron") would pass here. As on CUDA: 0-dim CPU tensors may mix, and index tensors may be on the CPU.
void check_same_device(const c10::OperatorHandle& op, const Stack& stack, size_t n_args) {
  static const std::unordered_set<std::string> mixed_ok{
      "aten::index",         "aten::index_put",         "aten::index_put_",           "aten::_index_put_impl_",
      "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::tensor_split"};
  const auto& name = op.operator_name().name;
  if (mixed_ok.count(name)) return;
  std::optional<c10::Device> neuron, other;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_meta()) return tensor;
    const auto device = tensor.device();
    if (device.type() != kNeuron) {
      if (tensor.dim() > 0) other = device;
    } else if (!neuron) {
      neuron = device;
    } else if (*neuron != device) {
      other = device;
    }
    return tensor;
  };
  for (size_t i = stack.size() - n_args; i < stack.size(); ++i) {
    c10::IValue value = stack[i];
    map_tensors(value, look);
  }
  TORCH_CHECK(!neuron || !other, "Expected all tensors to be on the same device, but found at least two devices, ",
              *neuron, " and ", *other, "! (", name, ")");
}

// TorchNeuron lowers _grouped_mm as if every group were a multiple of this alignment, which transformers does not
// provide. Eager mode raises; compiled code may silently take the wrong experts. Here both raise.
void check_group_alignment(const Stack& stack) {
  const auto align = std::max(1, std::atoi(env("TORCH_NEURONX_ATEN_GMM_ALIGN", "128").c_str()));
  const auto& offsets = stack[stack.size() - 3];  // _grouped_mm(self, mat2, offs, bias, out_dtype)
  if (align == 1 || !offsets.isTensor() || !offsets.toTensor().defined()) return;
  Aliases aliases;
  const auto ends = aliases.to_cpu(offsets.toTensor()).to(at::kLong);
  for (int64_t i = 0; i < ends.numel(); ++i)
    TORCH_CHECK(ends.data_ptr<int64_t>()[i] % align == 0, "offs must be divisible by ", align);
}

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const auto n_args = op.schema().arguments().size();
  check_same_device(op, *stack, n_args);
  if (op.operator_name().name == "aten::_grouped_mm") check_group_alignment(*stack);
  track(op, *stack, n_args);
  Aliases aliases;
  for (size_t i = stack->size() - n_args; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    if (value.isDevice() && value.toDevice().type() == kNeuron) {
      if (!aliases.device) aliases.device = value.toDevice();
      value = c10::Device(at::kCPU);
    } else {
      map_tensors(value, [&](const at::Tensor& tensor) { return aliases.to_cpu(tensor); });
    }
  }
  if (aliases.device && !aliases.device->has_index()) aliases.device = c10::Device(kNeuron, current_device());
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  aliases.sync_resized();
  const auto n_returns = op.schema().returns().size();
  for (size_t i = stack->size() - n_returns; i < stack->size(); ++i)
    map_tensors((*stack)[i], [&](const at::Tensor& tensor) { return aliases.to_neuron(tensor); });
}

void refuse_point_to_point(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK(false, "ProcessGroupNeuron does not support ", op.operator_name().name, " (emulated)");
}

// ---------------------------------------------------------------- the few operators that are really ours
c10::Device device_of(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kNeuron, current_device());
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype),
                                   format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// Every copy to the device, from it and on it.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  Aliases aliases;
  aliases.to_cpu(to).copy_(aliases.to_cpu(from));
  return to;
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, Storage(self.storage()), self.key_set(),
                                                       self.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                                    offset ? offset->expect_int() : self.storage_offset());
  return view;
}

at::Tensor& set_storage(at::Tensor& self, Storage storage, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(std::move(storage));
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (stride.empty() && !sizes.empty()) {
    tensor->set_sizes_contiguous(sizes);
    tensor->set_storage_offset(offset.expect_int());
  } else {
    tensor->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride), offset.expect_int());
  }
  return self;
}

at::Tensor& set_source(at::Tensor& self, Storage storage) {
  const auto elements = int64_t(storage.nbytes()) / self.itemsize();
  return set_storage(self, std::move(storage), 0, {c10::SymInt(elements)}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& from) {
  return set_storage(self, from.storage(), from.sym_storage_offset(), from.sym_sizes(), from.sym_strides());
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  if (format) tensor->empty_tensor_restride(*format);
  const size_t needed = (tensor->numel() + tensor->storage_offset()) * tensor->itemsize();
  if (needed > tensor->storage().nbytes()) resize_storage(tensor->unsafe_storage().unsafeGetStorageImpl(), needed);
  return self;
}

// Out-of-tree devices are sent here by aten::convolution; same arguments, so go back to the CPU's choice of kernel.
void convolution(const c10::OperatorHandle&, Stack* stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  run_on_cpu(op, stack);
}

// transformers' MoE counts tokens with an integer histc on every device but the CPU, whose kernel lacks integers.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  Aliases aliases;
  return aliases.to_neuron(at::histc(aliases.to_cpu(self).to(at::kFloat), bins, low, high).to(self.scalar_type()));
}

// ---------------------------------------------------------------- registration, and what Python calls
void register_collectives() {
  // c10d already has kernels for this key; replacing them warns, hence the silent handler.
  struct Quiet : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  static torch::Library c10d(torch::Library::IMPL, "c10d", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const char* op : {"reduce_", "broadcast_", "allreduce_", "allreduce_coalesced_", "allgather_", "_allgather_base_",
                         "allgather_coalesced_", "allgather_into_tensor_coalesced_", "reduce_scatter_",
                         "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_",
                         "alltoall_base_", "barrier", "monitored_barrier_"})
    c10d.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  for (const char* op : {"send", "recv_", "recv_any_source_"})
    c10d.impl(op, torch::CppFunction::makeFromBoxedFunction<&refuse_point_to_point>());
}

void register_device(int64_t bytes, std::string cache_folder, bool cache_enabled) {
  core_bytes = bytes;
  neff_cache = {std::move(cache_folder), cache_enabled};
  static NeuronHooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  register_collectives();
}

void clear_tracking() {
  const std::lock_guard<std::mutex> lock(tracking.mutex);
  tracking.executed.clear();
  tracking.fallbacks.clear();
}

}  // namespace

namespace at::native {  // SDPA: make the choice the CPU would make, so that results match the CPU's bit for bit
int64_t _fused_sdp_choice_cpp(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                              std::optional<double>, bool);
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &_fused_sdp_choice_cpp)
}  // namespace at::native

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }
// torch.autocast("neuron") is accepted and changes nothing.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("as_strided", &as_strided);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage", &set_source);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("histc", &histc);
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  // These have a generic kernel, which would win over the fallback, and a CPU one, which rounds differently: take the CPU's.
  for (const char* op : {"native_layer_norm", "native_group_norm", "addr", "linalg__powsum", "_grouped_mm"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY(neuron_emu, m) {
  m.def("register_device(int core_bytes, str cache_folder, bool cache_enabled) -> ()", &register_device);
  m.def("start() -> ()", &start);
  m.def("is_started() -> bool", []() -> bool { return runtime.started; });
  m.def("is_forked() -> bool", []() -> bool { return runtime.forked; });
  m.def("device_count() -> int", []() -> int64_t { return device_count(); });
  m.def("join_group(int local_rank, int local_world_size) -> ()", &join_group);
  m.def("neff_key(str text) -> str", [](std::string text) { return neff_key(text); });
  m.def("neff_find(str key) -> bool", [](std::string key) { return neff_find(key); });
  m.def("neff_store(str key, str text) -> ()", [](std::string key, std::string text) { neff_store(key, text); });
  m.def("enter_graph() -> ()", [] { ++graph_depth; });
  m.def("leave_graph() -> ()", [] { --graph_depth; });
  m.def("executed_ops() -> str[]", [] { return as_list(tracking.executed); });
  m.def("fallback_ops() -> str[]", [] { return as_list(tracking.fallbacks); });
  m.def("clear_tracking() -> ()", &clear_tracking);
}
