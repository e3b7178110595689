# The workloads on the BEAM: a GenServer under a DynamicSupervisor, with its name in a Registry.
# elixir benchmarks/cells/beam.exs w1

Logger.configure(level: :none)

defmodule Counter do
  use GenServer, restart: :permanent

  def start_link(number) do
    GenServer.start_link(__MODULE__, nil, name: {:via, Registry, {Names, {"bench", number}}})
  end

  def init(_), do: {:ok, {0, nil, nil}}
  def handle_cast(:add, {total, next, owner}), do: {:noreply, {total + 1, next, owner}}
  def handle_cast({:aim, next, owner}, {total, _, _}), do: {:noreply, {total, next, owner}}

  def handle_cast({:hop, 0}, {_, _, owner} = state) do
    send(owner, :done)
    {:noreply, state}
  end

  def handle_cast({:hop, left}, {_, next, _} = state) do
    GenServer.cast(next, {:hop, left - 1})
    {:noreply, state}
  end

  def handle_call(:total, _from, {total, _, _} = state), do: {:reply, total, state}
  def handle_call(:crash, _from, _state), do: raise("crash")
end

defmodule Bench do
  @tells 200_000
  @asks 10_000
  @callers 100
  @fan 1_000
  @fan_rounds 50
  @population 10_000
  @names 2_000
  @lookups 200_000
  @crashes 200
  @ring 1_000
  @hops 50_000

  def start(count) do
    {:ok, _} = Registry.start_link(keys: :unique, name: Names)
    {:ok, home} = DynamicSupervisor.start_link(strategy: :one_for_one, max_restarts: 1_000_000)

    actors =
      for number <- 0..(count - 1) do
        {:ok, pid} = DynamicSupervisor.start_child(home, {Counter, number})
        pid
      end

    {home, actors}
  end

  def micros(function) do
    begin = System.monotonic_time(:nanosecond)
    function.()
    (System.monotonic_time(:nanosecond) - begin) / 1000
  end

  def wait(0), do: :ok

  def wait(count) do
    receive do
      :done -> wait(count - 1)
    end
  end

  def run("w1") do
    {_, [pid]} = start(1)

    used =
      micros(fn ->
        for _ <- 1..@tells, do: GenServer.cast(pid, :add)
        @tells = GenServer.call(pid, :total, :infinity)
      end)

    [{"W1 tell", used / @tells}]
  end

  def run("w2a") do
    {_, [pid]} = start(1)
    [{"W2a ask", micros(fn -> for(_ <- 1..@asks, do: GenServer.call(pid, :total)) end) / @asks}]
  end

  def run("w2b") do
    {_, [pid]} = start(1)
    each = div(@asks, @callers)

    used =
      micros(fn ->
        1..@callers
        |> Enum.map(fn _ -> Task.async(fn -> for(_ <- 1..each, do: GenServer.call(pid, :total)) end) end)
        |> Task.await_many(:infinity)
      end)

    [{"W2b ask, 100 callers", used / @asks}]
  end

  def run("w3") do
    {_, pids} = start(@fan)
    for pid <- pids, do: GenServer.cast(pid, {:aim, nil, self()})

    used =
      micros(fn ->
        for _ <- 2..@fan_rounds, pid <- pids, do: GenServer.cast(pid, :add)
        for pid <- pids, do: GenServer.cast(pid, {:hop, 0})
        wait(@fan)
      end)

    [{"W3 fan to 1,000", used / (@fan * @fan_rounds)}]
  end

  def run("w4") do
    parent = self()
    started = micros(fn -> send(parent, start(@population)) end)

    receive do
      {home, _} ->
        stopped = micros(fn -> DynamicSupervisor.stop(home) end)
        [{"W4 start", started / @population}, {"W4 stop", stopped / @population}]
    end
  end

  def run("w5") do
    :erlang.garbage_collect()
    before = :erlang.memory(:total)
    {_, pids} = start(@population)
    :erlang.garbage_collect()
    used = :erlang.memory(:total) - before
    [{"W5 memory", used / length(pids) / 1024}]
  end

  def run("w6") do
    start(@names)
    rounds = div(@lookups, @names)
    keys = for number <- 0..(@names - 1), do: {"bench", number}
    used = micros(fn -> for(_ <- 1..rounds, key <- keys, do: Registry.lookup(Names, key)) end)
    [{"W6 lookup", used * 1000 / (rounds * @names)}]
  end

  def run("w7") do
    start(1)
    times = for(_ <- 1..@crashes, do: micros(&crash/0)) |> Enum.sort()
    [{"W7 crash to answer", Enum.at(times, div(@crashes, 2))}]
  end

  def run("w8") do
    {_, pids} = start(@ring)
    me = self()

    Enum.zip(pids, tl(pids) ++ [hd(pids)])
    |> Enum.each(fn {pid, next} -> GenServer.cast(pid, {:aim, next, me}) end)

    for pid <- pids, do: GenServer.call(pid, :total)

    used =
      micros(fn ->
        GenServer.cast(hd(pids), {:hop, @hops})
        wait(1)
      end)

    [{"W8 ring of 1,000", used / @hops}]
  end

  def crash() do
    old = find()

    try do
      GenServer.call(old, :crash)
    catch
      :exit, _ -> :ok
    end

    GenServer.call(other(old), :total)
  end

  def find() do
    case Registry.lookup(Names, {"bench", 0}) do
      [{pid, _}] -> pid
      [] -> nil
    end
  end

  def other(old) do
    case find() do
      pid when pid == nil or pid == old -> other(old)
      pid -> pid
    end
  end
end

[workload] = System.argv()
figures = for {name, value} <- Bench.run(workload), do: ~s("#{name}": #{value / 1})
IO.puts("{" <> Enum.join(figures, ", ") <> "}")
