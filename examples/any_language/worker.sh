#!/usr/bin/env bash
# A complete Holdfast worker in bash and curl. Usage: HOLDFAST_URL=… HOLDFAST_TOKEN=… ./worker.sh [STREAM…]
# It runs one task, `echo`: {"text": any JSON, "seconds": 2, "error": "…"}. Put your program into `work`.
set -u
: "${HOLDFAST_URL:?the control plane, say http://127.0.0.1:8787}" "${HOLDFAST_TOKEN:?a token with scope worker}"
me="bash-$HOSTNAME-$$" stopping='' working='' polling=''
scratch=$(mktemp -d)
exec {never}<> <(:) # reading from it with a time limit is sleeping, without a process that would outlive us
declare -A F

say() { printf '%s\n' "$me: $*" >&2; }
pause() { read -rt "$1" -u "$never" || true; }
quote() { # a text as a JSON string
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"} text=${text//$'\t'/\\t} text=${text//$'\n'/\\n}
  printf '"%s"' "${text//[[:cntrl:]]/}"
}
parse() { # fills F with the fields of a JSON object, each value as it stands there
  local rest=$1 depth=0 name='' value='' token pattern='^[[:space:]]*("([^"\\]|\\.)*"|[^][{}:,"[:space:]]+|[][{}:,])'
  F=()
  while [[ $rest =~ $pattern ]]; do
    token=${BASH_REMATCH[1]} rest=${rest:${#BASH_REMATCH[0]}}
    case $depth$token in
    0\{) depth=1 ;;
    1:) name=${value//\"/} value='' ;;
    1, | 1\}) [[ $name ]] && F[$name]=$value name='' value='' ;;
    *)
      value+=$token
      [[ $token == [\[\{] ]] && ((depth += 1))
      [[ $token == [\]\}] ]] && ((depth -= 1))
      ;;
    esac
  done
}
send() { # send ENDPOINT BODY [SECONDS RETRIES]: becomes curl, which prints the answer
  exec curl -sS --fail --max-time "${3:-70}" --retry "${4:-6}" --retry-all-errors -H 'Content-Type: application/json' \
    -H @<(printf 'Authorization: Bearer %s' "$HOLDFAST_TOKEN") --data-binary @- "$HOLDFAST_URL/internal/worker/$1" <<<"$2"
}
post() { (send "$@"); } # whatever got lost on its way may be sent again: it is recorded once, and answered the same

work() { # work PAYLOAD: prints the result as JSON; or says what is wrong on standard error and ends with another code
  parse "$1"
  pause "${F[seconds]:-0}"
  [[ ! ${F[error]:-} ]] || { printf '%s' "${F[error]//\"/}" >&2 && return 1; }
  printf '{"echo":%s,"by":"bash"}' "${F[text]:-null}"
}

beat() { # beat JOB: keeps the lease; ends the work when the lease is lost, or when somebody asked for a cancel
  local sent due=$((SECONDS + ${F[lease_ttl_seconds]%.*} - 1)) every=${F[heartbeat_interval_seconds]} verdict=lost answer
  while pause "$every" && ((SECONDS < due)) && kill -0 $$ 2>/dev/null; do # also if we were killed
    sent=$SECONDS
    answer=$(post heartbeat "{$1}" "$every" 0) || continue
    parse "$answer"
    [[ ${F[cancel]} == true ]] && verdict=cancelled
    [[ ${F[ok]} == true && ${F[cancel]} == false ]] || break
    due=$((sent + ${F[lease_ttl_seconds]%.*} - 1)) # counted in whole seconds
  done
  end_work "$verdict"
}
end_work() { echo "$1" >"$scratch/verdict" && kill "$working" 2>/dev/null; }
run() { # the job in F, from its start to the acknowledged report
  local job="\"worker_id\":\"$me\",\"job_id\":${F[job_id]},\"lease_token\":${F[lease_token]}" code limit=${F[timeout_seconds]}
  local report="$job,\"attempt_id\":${F[attempt_id]},\"stream\":${F[stream]},\"message_id\":${F[message_id]}" helpers verdict
  say "runs ${F[attempt_id]}"
  : >"$scratch/verdict"
  { [[ ! $stopping ]] && work "${F[payload]}"; } >"$scratch/result" 2>"$scratch/error" &
  working=$!
  beat "$job" & helpers=$!
  [[ $limit == null ]] || { (pause "$limit" && end_work timeout) & helpers+=" $!"; }
  disown $helpers 2>/dev/null # nobody wants to read how they ended
  while wait "$working" 2>/dev/null; code=$? && kill -0 "$working" 2>/dev/null; do # a signal for us ends a wait
    kill ${stopping:+"$working"} 2>/dev/null
  done
  kill -KILL $helpers 2>/dev/null
  working='' && ((code == 0)) && verdict=done || verdict=${stopping:-$(<"$scratch/verdict")}
  case $verdict in
  done) post complete "{$report,\"result\":$(<"$scratch/result")}" ;;
  lost) say "lost its lease on ${F[job_id]}" ;;
  stopping | cancelled) post release "{$report}" ;;
  timeout) post fail "{$report,\"error\":{\"code\":\"timeout\",\"message\":\"ran longer than $limit s\"}}" ;;
  *) post fail "{$report,\"error\":{\"code\":\"Exit$code\",\"message\":$(quote "$(<"$scratch/error")")}}" ;;
  esac >"$scratch/answer" || say "could not report ${F[job_id]}: its lease will run out"
}

trap '[[ $BASHPID != $$ ]] || rm -rf "$scratch"' EXIT
trap 'stopping=stopping; kill $working 2>/dev/null; kill -KILL $polling 2>/dev/null' TERM INT
streams=$(printf ',"%s"' "$@")
[[ $# -gt 0 ]] && streams="[${streams:1}]" || streams=null
while [[ ! $stopping ]]; do
  claim="\"worker_id\":\"$me\",\"streams\":$streams,\"request_id\":\"$me-$RANDOM$RANDOM$RANDOM\""
  send claim "{$claim,\"tasks\":[\"echo\"],\"max_wait_ms\":20000}" >"$scratch/answer" &
  polling=$! && [[ ! $stopping ]] || kill -KILL "$polling"
  wait "$polling" 2>/dev/null || [[ $stopping ]] || { say "the control plane does not answer"; pause 5; continue; }
  # Told to stop while asking: what this very request was given, if anything, is asked for again and given back.
  [[ ! $stopping ]] || post claim "{$claim,\"tasks\":[]}" >"$scratch/answer"
  parse "$(<"$scratch/answer")"
  [[ ${F[claimed]:-} == true ]] && run
done
say "stopped"
