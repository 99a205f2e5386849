"""Small configs of many architectures, in the shape of the real ones."""

from __future__ import annotations

from typing import Any

_DENSE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 101}
_HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}
_LATENT = {
    "num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
}  # fmt: skip


def config(model_type: str, architecture: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": [architecture], **_DENSE, **_HEADS, **fields}


TEXT: dict[str, dict[str, Any]] = {
    "llama": config("llama", "LlamaForCausalLM", tie_word_embeddings=False),
    "llama-tied": config("llama", "LlamaForCausalLM", tie_word_embeddings=True),
    "llama-7-heads": config("llama", "LlamaForCausalLM", hidden_size=56, num_attention_heads=7, num_key_value_heads=7),
    "qwen2": config("qwen2", "Qwen2ForCausalLM"),
    "qwen3": config("qwen3", "Qwen3ForCausalLM", tie_word_embeddings=True),
    "phi3": config("phi3", "Phi3ForCausalLM", pad_token_id=0),
    "gpt_neox": config("gpt_neox", "GPTNeoXForCausalLM", num_key_value_heads=8),
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 101},
    "gemma3_text": config("gemma3_text", "Gemma3ForCausalLM", sliding_window=16, layer_types=["sliding_attention", "full_attention"]),
    "mixtral": config("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": config("qwen3_moe", "Qwen3MoeForCausalLM", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24),
    "gpt_oss": config("gpt_oss", "GptOssForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    "granitemoe": config("granitemoe", "GraniteMoeForCausalLM", num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True),
    "deepseek_v3": config(
        "deepseek_v3", "DeepseekV3ForCausalLM", **_LATENT, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=24,
        first_k_dense_replace=1, n_group=2, topk_group=1, num_nextn_predict_layers=1,
    ),
    "nemotron_h": config(
        "nemotron_h", "NemotronHForCausalLM", num_hidden_layers=4, hybrid_override_pattern="M*E-", num_key_value_heads=2,
        mamba_num_heads=8, mamba_head_dim=8, n_groups=2, ssm_state_size=8, n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=24, moe_shared_expert_intermediate_size=24, n_group=1, topk_group=1,
    ),
    "llama4_text": config("llama4_text", "Llama4ForCausalLM", num_local_experts=4, intermediate_size_mlp=96, moe_layers=[1]),
}  # fmt: skip
