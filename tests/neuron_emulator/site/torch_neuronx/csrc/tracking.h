// Which operators ran eagerly, and which of them the real device would have left to the CPU. In eager mode TorchNeuron
// compiles one NEFF per operator and shape, so each new pair leaves a file in the cache here too.
#pragma once
#include "neff.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <set>
#include <unordered_set>

namespace neuron_emu {

struct Tracking {
  std::mutex mutex;
  std::set<std::string> executed, fallbacks;
  std::unordered_set<std::string> compiled;  // operators and shapes whose NEFF exists
};
inline Tracking tracking;
inline thread_local int graph_depth = 0;  // > 0: a compiled graph runs, its operators are not eager ones

// Random numbers fall back to the CPU on the betas; NEURON_EMU_FAULT=fallback adds the greedy choice of a token.
inline bool falls_back(const std::string& name) {
  static const std::unordered_set<std::string> random{"aten::multinomial", "aten::normal_",   "aten::uniform_",
                                                      "aten::random_",     "aten::randperm",  "aten::bernoulli_",
                                                      "aten::exponential_"};
  return random.count(name) || (name == "aten::argmax" && has_fault("fallback"));
}

// Views and reads of single numbers launch nothing on the device; collectives are no operators.
inline bool launches(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  if (name.rfind("aten::", 0) != 0 || name == "aten::_local_scalar_dense") return false;
  const auto& returns = op.schema().returns();
  const auto* alias = returns.empty() ? nullptr : returns[0].alias_info();
  return !alias || alias->isWrite();
}

inline std::string signature(const std::string& name, const torch::jit::Stack& stack, size_t n_args) {
  std::ostringstream text;
  text << name;
  for (size_t i = stack.size() - n_args; i < stack.size(); ++i) {
    const auto& value = stack[i];
    if (value.isTensor() && value.toTensor().defined())
      text << ' ' << value.toTensor().scalar_type() << value.toTensor().sizes();
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorList()) text << ' ' << tensor.scalar_type() << tensor.sizes();
    else if (value.isInt() || value.isBool() || value.isIntList())
      text << ' ' << value;
  }
  return text.str();
}

inline void track(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t n_args) {
  if (graph_depth > 0 || !launches(op)) return;
  const auto& name = op.operator_name().name;
  const std::lock_guard<std::mutex> lock(tracking.mutex);
  if (falls_back(name)) {
    if (tracking.fallbacks.insert(name).second) std::fprintf(stderr, "%s fell back to CPU (emulated)\n", name.c_str());
    return;
  }
  tracking.executed.insert(name);
  const auto text = signature(name, stack, n_args);
  if (!tracking.compiled.insert(text).second) return;
  const auto key = neff_key("eager\n" + text);
  if (!neff_find(key)) neff_store(key, "eager " + text);
}

inline std::vector<std::string> as_list(const std::set<std::string>& names) { return {names.begin(), names.end()}; }

}  // namespace neuron_emu
