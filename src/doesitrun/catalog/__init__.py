"""Looking models up in the published data: one module, behind every door. Needs no torch.

source = open_data("results")                  a workspace, a folder of Parquet files, or hf://datasets/ORG/NAME
data = source.current()                        the data as they are now, in memory; never changes
find(data, Query(text="qwen"))                 lines of a view
page(data, "Qwen/Qwen3-0.6B")                  everything about one model
compare(data, pair, pair), coverage(data, query), events(data)
"""
