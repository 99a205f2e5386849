// A neuron tensor and a CPU tensor may describe THE SAME bytes. Here one is made from the other without a copy.
#pragma once
#include "memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace neuron_emu {

using c10::Storage;

inline bool is_neuron(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kNeuron; }

inline void resize_storage(c10::StorageImpl* storage, size_t size) {
  if (size == storage->nbytes()) return;
  c10::OptionalDeviceGuard guard(storage->device());
  auto fresh = allocator.allocate(size);
  if (const auto keep = std::min(size, storage->nbytes())) std::memcpy(fresh.get(), storage->data(), keep);
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(size);
}

inline at::Tensor tensor_over(const Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

// The aliases made for one operator call: two views of one neuron storage must share one storage on the CPU side too.
class Aliases {
 public:
  std::optional<c10::Device> device;  // where fresh results go

  at::Tensor to_cpu(const at::Tensor& tensor) {
    if (!is_neuron(tensor)) return tensor;
    if (!device) device = tensor.device();
    for (auto& [neuron, cpu] : pairs_)
      if (neuron.is_same(tensor)) return cpu;
    auto cpu = tensor_over(cpu_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) cpu.unsafeGetTensorImpl()->set_wrapped_number(true);
    pairs_.emplace_back(tensor, cpu);
    return cpu;
  }

  // After the call: an out= argument may have been resized; bring its storage and shape back.
  void sync_resized() {
    for (auto& [neuron, cpu] : pairs_) {
      if (cpu.storage().data() != neuron.storage().data() || cpu.storage().nbytes() != neuron.storage().nbytes()) {
        auto* storage = neuron.storage().unsafeGetStorageImpl();
        resize_storage(storage, cpu.storage().nbytes());
        if (storage->nbytes()) std::memcpy(storage->mutable_data(), cpu.storage().data(), storage->nbytes());
      }
      if (cpu.sizes() != neuron.sizes() || cpu.strides() != neuron.strides() ||
          cpu.storage_offset() != neuron.storage_offset())
        neuron.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
  }

  // An alias becomes its neuron tensor again, a view of an alias a view of that; anything else is copied over.
  at::Tensor to_neuron(const at::Tensor& cpu) {
    if (!cpu.defined() || cpu.device().type() != at::kCPU || cpu.layout() != at::kStrided || !device) return cpu;
    for (auto& [neuron, alias] : pairs_)
      if (alias.is_same(cpu)) return neuron;
    const auto known = neuron_of_.find(cpu.storage().unsafeGetStorageImpl());
    if (known != neuron_of_.end()) return tensor_over(known->second, c10::DispatchKey::PrivateUse1, cpu);
    return copy_to_neuron(cpu);
  }

 private:
  std::unordered_map<c10::StorageImpl*, Storage> cpu_of_;     // neuron storage -> CPU storage
  std::unordered_map<c10::StorageImpl*, Storage> neuron_of_;  // and back
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;      // (neuron, CPU alias)

  // The alias keeps the neuron storage alive: gloo may still read it after an asynchronous collective returned.
  const Storage& cpu_storage(const Storage& neuron) {
    auto& cpu = cpu_of_[neuron.unsafeGetStorageImpl()];
    if (cpu) return cpu;
    auto* keep = new Storage(neuron);
    c10::DataPtr bytes(const_cast<void*>(neuron.data()), keep, [](void* p) { delete static_cast<Storage*>(p); },
                       at::kCPU);
    cpu = Storage(Storage::use_byte_size_t(), neuron.nbytes(), std::move(bytes), c10::GetAllocator(at::kCPU),
                  /*resizable=*/true);
    neuron_of_[cpu.unsafeGetStorageImpl()] = neuron;
    return cpu;
  }

  at::Tensor copy_to_neuron(const at::Tensor& cpu) const {
    c10::DeviceGuard guard(*device);
    auto neuron = at::detail::empty_strided_generic(cpu.sizes(), cpu.strides(), &allocator,
                                                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                    cpu.scalar_type());
    const auto* from = static_cast<const char*>(cpu.storage().data()) + cpu.storage_offset() * cpu.itemsize();
    if (const auto size = neuron.storage().nbytes()) std::memcpy(neuron.storage().mutable_data(), from, size);
    return neuron;
  }
};

}  // namespace neuron_emu
