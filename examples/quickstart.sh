#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lapse from the shell, with curl and jq alone.
#   quickstart.sh heartbeat AGENT CLUSTER    stay alive until Ctrl-C, then say goodbye
#   quickstart.sh work AGENT                 claim messages, do the work, mark them read
#   quickstart.sh follow                     print events, across restarts of the daemon
#   quickstart.sh lease TABLE KEY HOLDER     hold a lease until Ctrl-C, then give it back
set -euo pipefail
url=${LAPSE_URL:-http://127.0.0.1:7878}

lapse() { # METHOD PATH [JSON]
	curl -sS --fail-with-body -X "$1" "$url$2" ${LAPSE_TOKEN:+-H "Authorization: Bearer $LAPSE_TOKEN"} \
		${3:+-H 'Content-Type: application/json' -d "$3"}
}

heartbeat() { # An agent that is silent for 90 s is evicted: beat three times as often.
	agent=/v1/agents/$1 cluster=$2
	trap 'lapse DELETE "$agent" >/dev/null; exit 0' INT TERM
	while :; do
		lapse POST "$agent/heartbeat" "{\"cluster_id\": \"$cluster\", \"capabilities\": [\"shell\"]}" >/dev/null ||
			echo "no heartbeat: trying again" >&2
		sleep "${BEAT_S:-30}" & wait $!
	done
}

work() { # What is not marked read when its lease ends is offered again.
	while :; do
		claim=$(lapse POST "/v1/agents/$1/messages/claim" '{"limit": 1, "visibility_ms": 30000, "wait_ms": 20000}') ||
			{ sleep 1; continue; }
		id=$(jq -r '.data[0].id // empty' <<<"$claim")
		[ -n "$id" ] || continue
		echo "working on: $(jq -r '.data[0].content' <<<"$claim")"
		lapse POST "/v1/agents/$1/messages/$id/read" "$(jq '{claim_id}' <<<"$claim")" >/dev/null ||
			echo "the lease is over: another worker has it" >&2
	done
}

follow() { # The last id says where to go on.
	last=
	while :; do
		while read -r line; do
			case $line in
			id:*) last=${line#id: } ;;
			event:*) kind=${line#event: } ;;
			data:*) echo "$last $kind ${line#data: }" ;;
			esac
		done < <(curl -sSN "$url/v1/events" ${last:+-H "Last-Event-ID: $last"} \
			${LAPSE_TOKEN:+-H "Authorization: Bearer $LAPSE_TOKEN"} 2>/dev/null)
		sleep 2
	done
}

lease() { # Give the fencing token with every write: storage that refuses smaller ones is safe from a holder that was late.
	path=/v1/leases/$1/$2 holder=$3 body="{\"holder\": \"$3\", \"ttl_ms\": 10000}"
	until held=$(lapse PUT "$path" "$body" 2>/dev/null); do sleep 1 & wait $!; done
	token=$(jq .fencing_token <<<"$held")
	trap 'lapse DELETE "$path?holder=$holder&fencing_token=$token" >/dev/null; exit 0' INT TERM
	echo "holding $2 with fencing token $token"
	while sleep "${BEAT_S:-3}" & wait $!; do
		held=$(lapse PUT "$path" "$body" 2>/dev/null) || held='{}'
		[ "$(jq .fencing_token <<<"$held")" = "$token" ] || { echo "the lease is lost: stop writing" >&2; exit 1; }
	done
}

case ${1-} in
heartbeat | work | follow | lease) "$@" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
